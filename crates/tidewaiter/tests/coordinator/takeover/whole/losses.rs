//! The losses of objects. A watch of each kind sees every state of every object from the moment in which it begins.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use futures::{StreamExt as _, TryStreamExt as _};
use kube::ResourceExt as _;
use kube::api::{Api, ListParams, WatchEvent, WatchParams};
use kube::core::DynamicObject;
use serde_json::Value;
use tidewaiter_testkit::eventually;

use crate::SOON;
use crate::cloud::beside;

/// The objects of a kind that are watched.
#[derive(Clone)]
pub struct Watched {
    pub kind: String,
    pub api: Api<DynamicObject>,
    pub selector: &'static str,
    /// The objects, as `namespace/name`; None for all that the selector matches.
    pub names: Option<BTreeSet<String>>,
    /// Returns the permissions that an object gives to others: none of it may go.
    pub effect: fn(&DynamicObject) -> Value,
}

/// By its name, the version and the effect of each object, as the watches have shown it last; and what objects lost.
type Recorded = (BTreeMap<String, (String, Value)>, Vec<String>);

/// Everything that the watched objects lose.
pub struct Losses {
    watched: Vec<Watched>,
    recorded: Arc<Mutex<Recorded>>,
}

impl Losses {
    /// Watches the objects from now on.
    pub async fn watch(watched: Vec<Watched>) -> Self {
        let recorded = Arc::<Mutex<Recorded>>::default();
        for kind in &watched {
            let list = kind.list().await;
            let version = list.metadata.resource_version.clone().unwrap();
            for object in list.items.iter().filter(|object| kind.has(object)) {
                kind.saw(&recorded, object);
            }
            let (kind, recorded) = (kind.clone(), Arc::clone(&recorded));
            beside(async move { kind.follow(version, &recorded).await });
        }
        Self { watched, recorded }
    }

    /// Returns the losses since the last call, once the watches have shown the objects as they are now.
    pub async fn take(&self) -> Vec<String> {
        eventually("the watches to show the objects as they are", SOON, async || {
            let mut now = BTreeMap::new();
            for kind in &self.watched {
                let list = kind.list().await;
                let found = list.iter().filter(|object| kind.has(object));
                now.extend(found.map(|object| (kind.named(object), object.resource_version().unwrap())));
            }
            let recorded = self.recorded.lock().unwrap();
            let shown: BTreeMap<_, _> = recorded.0.iter().map(|(name, (version, _))| (name, version)).collect();
            if shown == now.iter().collect() {
                Ok(())
            } else {
                Err(format!("{shown:?} in place of {now:?}"))
            }
        })
        .await;
        std::mem::take(&mut self.recorded.lock().unwrap().1)
    }
}

impl Watched {
    async fn list(&self) -> kube::core::ObjectList<DynamicObject> {
        let params = ListParams::default().labels(self.selector);
        self.api.list(&params).await.unwrap()
    }

    fn has(&self, object: &DynamicObject) -> bool {
        self.names.as_ref().is_none_or(|names| names.contains(&place(object)))
    }

    fn named(&self, object: &DynamicObject) -> String {
        format!("{} {}", self.kind, place(object))
    }

    async fn follow(self, mut version: String, recorded: &Mutex<Recorded>) {
        let params = WatchParams::default().labels(self.selector);
        loop {
            let mut events = self.api.watch(&params, &version).await.unwrap().boxed();
            while let Some(event) = events.try_next().await.unwrap() {
                match event {
                    WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                        version = object.resource_version().unwrap();
                        if self.has(&object) {
                            self.saw(recorded, &object);
                        }
                    }
                    WatchEvent::Deleted(object) => {
                        version = object.resource_version().unwrap();
                        let name = self.named(&object);
                        let mut recorded = recorded.lock().unwrap();
                        if recorded.0.remove(&name).is_some() {
                            recorded.1.push(format!("{name} is gone"));
                        }
                    }
                    WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                    WatchEvent::Error(error) => {
                        let ended = format!("the watch of {} ended: {}", self.kind, error.message);
                        return recorded.lock().unwrap().1.push(ended);
                    }
                }
            }
        }
    }

    fn saw(&self, recorded: &Mutex<Recorded>, object: &DynamicObject) {
        let (name, after) = (self.named(object), (self.effect)(object));
        let state = (object.resource_version().unwrap(), after.clone());
        let mut recorded = recorded.lock().unwrap();
        let before = recorded.0.insert(name.clone(), state);
        if let Some((_, before)) = before.filter(|(_, before)| !contains(&after, before)) {
            recorded.1.push(format!("{name} had {before}, and has {after}"));
        }
    }
}

fn place(object: &DynamicObject) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Returns true if `whole` has everything that `part` has: of objects each field, of lists each item.
fn contains(whole: &Value, part: &Value) -> bool {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => part
            .iter()
            .all(|(key, value)| whole.get(key).is_some_and(|found| contains(found, value))),
        (Value::Array(whole), Value::Array(part)) => {
            part.iter().all(|item| whole.iter().any(|found| contains(found, item)))
        }
        (whole, part) => whole == part,
    }
}
