//! Waits for the deletion of foreign objects that have the name of a desired child.
//!
//! A cache with a label selector does not show them, so their deletion would start no pass: the child would be created
//! minutes later, by the slow retry. Each such name is watched in all namespaces, metadata only, until no pass waits
//! for it any more.
//!
//! Never: a watch of a name that no pass reported. The number of watches is bounded by the number of desired names.

use std::collections::{BTreeMap, BTreeSet};
use std::marker::PhantomData;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio_util::sync::DropGuard;
use tracing::debug;

use super::ChildrenError;
use crate::cache::{Cacheable, WATCH_SECONDS};
use crate::chain::Chain;
use crate::key::Key;
use crate::queue::Queue;
use crate::tasks::{Spawner, Tasks};

/// The foreign objects of one kind that passes of one controller wait for.
pub struct ForeignObjects<K> {
    names: Names,
    client: Client,
    queue: Queue,
    watches: Spawner,
    kind: PhantomData<fn() -> K>,
}

type Names = Arc<Mutex<BTreeMap<String, Name>>>;

/// A name that foreign objects have.
struct Name {
    /// The objects by the key of the pass that waits for their end.
    waiting: BTreeMap<Key, BTreeSet<Key>>,
    /// Ends the watch.
    _watch: DropGuard,
}

impl<K: Cacheable + DeserializeOwned> ForeignObjects<K> {
    /// Starts the task `foreign/<controller>-<kind>`, which pushes the keys of waiting passes into `queue`.
    #[must_use]
    pub fn start(controller: &str, client: Client, queue: Queue, tasks: &mut Tasks) -> Self {
        let task = format!("foreign/{controller}-{}", K::kind(&()).to_lowercase());
        Self {
            names: Names::default(),
            client,
            queue,
            watches: tasks.spawner(task),
            kind: PhantomData,
        }
    }

    /// As [`ForeignObjects::set`], for those of the result of the pass, which it returns.
    ///
    /// # Errors
    /// As the pass.
    pub fn track<T>(&self, pass: &Key, result: Result<T, ChildrenError>) -> Result<T, ChildrenError> {
        self.set(
            pass,
            result.as_ref().err().map(ChildrenError::foreign).unwrap_or_default(),
        );
        result
    }

    /// Remembers the foreign objects of the pass with this key, in place of those of the pass before.
    pub fn set(&self, pass: &Key, foreign: impl IntoIterator<Item = Key>) {
        let mut names = self.names.lock();
        for name in names.values_mut() {
            name.waiting.remove(pass);
        }
        for object in foreign {
            let name = names.entry(object.name().to_owned()).or_insert_with(|| {
                let (client, name) = (self.client.clone(), object.name().to_owned());
                let watch = follow::<K>(client, name, Arc::clone(&self.names), self.queue.clone());
                Name {
                    waiting: BTreeMap::new(),
                    _watch: self.watches.spawn(watch),
                }
            });
            name.waiting.entry(pass.clone()).or_default().insert(object);
        }
        names.retain(|_, name| !name.waiting.is_empty());
    }
}

/// Follows the objects of the name, and queues the passes whose object is deleted.
async fn follow<K: Cacheable + DeserializeOwned>(client: Client, name: String, names: Names, queue: Queue) {
    let push_if = |gone: &dyn Fn(&Key) -> bool| {
        let names = names.lock();
        let waiting = names.get(&name).into_iter().flat_map(|name| &name.waiting);
        for (pass, _) in waiting.filter(|(_, objects)| objects.iter().any(gone)) {
            queue.push(pass.clone());
        }
    };
    let config = watcher::Config::default()
        .fields(&format!("metadata.name={name}"))
        .timeout(WATCH_SECONDS);
    let mut events = watcher::watcher(Api::<PartialObjectMeta<K>>::all(client), config)
        .default_backoff()
        .boxed();
    let key = |object: &PartialObjectMeta<K>| Key::of_meta(&object.metadata);
    let mut present = BTreeSet::new();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => present.clear(),
            Ok(Event::InitApply(object)) => drop(present.insert(key(&object))),
            // An object that the list lacks was deleted before it.
            Ok(Event::InitDone) => push_if(&|object| !present.contains(object)),
            Ok(Event::Apply(_)) => {}
            Ok(Event::Delete(object)) => push_if(&|waiting| *waiting == key(&object)),
            Err(error) => {
                debug!(kind = %K::kind(&()), name, error = %Chain(&error), "the foreign objects of a name cannot be watched");
            }
        }
    }
}
