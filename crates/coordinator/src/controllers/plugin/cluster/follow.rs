//! Watches the objects of all plugins, so that a change of one reconciles its plugin at once.
//!
//! There is one watch for each kind that any plugin has, for objects with the label of a plugin, and of their metadata
//! alone. It holds no object, and begins at the present: it lists none. What changed before it began, or while it was
//! broken, is seen by the passes that it starts then. A service account watches for itself, in each namespace apart. A
//! pass adds the places that it met. The watch of a kind whose definition is deleted ends, until a pass meets the kind
//! again.
//! The watch of a place ends with the last plugin that has objects in it: as an account that is gone, it would fail for
//! ever. A plugin has left the places that its pass did not meet, if that has observed the cluster to its end.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, DynamicObject, DynamicResourceScope, ObjectMeta};
use kube::{Api, Error, Resource};
use parking_lot::Mutex;
use serde::Deserialize;
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_kit::client::is_not_found;
use tidewaiter_kit::{Backoff, Chain, SharedClock, Spawner, Tasks};
use tokio_util::sync::DropGuard;
use tracing::debug;

use super::wake::Wakes;
use super::{Cluster, Place};
use crate::controllers::plugin::desired::ObjectId;

/// A watch ends after this time and goes on where it was.
const WATCH_SECONDS: u32 = 60;
/// A connection on which nothing comes for this time is given up: a little more than a watch takes.
const SILENCE: Duration = Duration::from_secs(65);
/// A watch that ends sooner counts as failed.
const SHORTEST: Duration = Duration::from_secs(1);
/// Between two attempts at a watch that fails.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(30));

/// A watch: the group, version and plural of its kind, its namespace, and as whom it is made.
type WatchKey = (String, String, String, Option<String>, Option<String>);

/// The watched places.
pub(crate) struct Followed {
    watched: Arc<Mutex<BTreeMap<WatchKey, Watched>>>,
    /// By plugin, the places that its current pass has met.
    met: Mutex<BTreeMap<String, BTreeSet<WatchKey>>>,
    watches: Spawner,
    wakes: Wakes,
    clock: SharedClock,
}

/// A watched place.
struct Watched {
    /// The plugins with objects in it. Without any, the watch ends: its service account may be gone, too.
    plugins: BTreeSet<String>,
    /// Ends the watch.
    _watch: DropGuard,
}

struct Watch {
    resource: ApiResource,
    api: Api<Changed>,
}

/// The state of a changed object in a watch. Its managed fields, which are most of its metadata, are not kept: there is
/// an event for each object that is applied.
#[derive(Clone, Debug, Deserialize)]
struct Changed {
    #[serde(deserialize_with = "tidewaiter_kit::slim::without_labels")]
    metadata: ObjectMeta,
}

impl Resource for Changed {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn metadata_api() -> bool {
        true
    }

    fn kind(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(resource)
    }

    fn group(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(resource)
    }

    fn version(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(resource)
    }

    fn plural(resource: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(resource)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl Followed {
    /// Starts the task that watches.
    pub(crate) fn start(wakes: Wakes, clock: SharedClock, tasks: &mut Tasks) -> Self {
        Self {
            watched: Arc::default(),
            met: Mutex::default(),
            watches: tasks.spawner("plugin-objects"),
            wakes,
            clock,
        }
    }

    /// Watches the places that are not watched yet, as `cluster` does: a service account may have permissions in some
    /// namespaces only.
    pub(crate) fn add_all(&self, plugin: &str, cluster: &Cluster, places: &[Place]) {
        for Place { kind, namespace } in places {
            let (resource, account) = (&kind.resource, cluster.account.as_ref());
            let namespace = namespace.as_deref().filter(|_| account.is_some());
            let key = (
                resource.group.clone(),
                resource.version.clone(),
                resource.plural.clone(),
                namespace.map(str::to_owned),
                account.map(ToString::to_string),
            );
            self.met
                .lock()
                .entry(plugin.to_owned())
                .or_default()
                .insert(key.clone());
            let mut all = self.watched.lock();
            if let Some(watched) = all.get_mut(&key) {
                watched.plugins.insert(plugin.to_owned());
                continue;
            }
            let client = cluster.client.clone();
            let watch = Watch {
                resource: resource.clone(),
                api: match namespace {
                    Some(namespace) => Api::namespaced_with(client, namespace, resource),
                    None => Api::all_with(client, resource),
                },
            };
            let (known, unserved) = (Arc::clone(&self.watched), key.clone());
            let (wakes, clock) = (self.wakes.clone(), Arc::clone(&self.clock));
            let followed = async move {
                follow(watch, wakes, clock).await;
                known.lock().remove(&unserved);
            };
            let watched = Watched {
                plugins: [plugin.to_owned()].into(),
                _watch: self.watches.spawn(followed),
            };
            all.insert(key, watched);
        }
    }

    /// A pass over the plugin begins.
    pub(crate) fn begins(&self, plugin: &str) {
        self.met.lock().remove(plugin);
    }

    /// The pass has succeeded: the plugin has left the places that it did not meet. One that met none has observed
    /// nothing.
    pub(crate) fn succeeds(&self, plugin: &str) {
        if let Some(met) = self.met.lock().remove(plugin) {
            self.leave(plugin, |place| !met.contains(place));
        }
    }

    /// The plugin is gone.
    pub(crate) fn forget(&self, plugin: &str) {
        self.met.lock().remove(plugin);
        self.leave(plugin, |_| true);
    }

    /// Ends the watches of the places that the plugin has left, and in which no other one has objects.
    fn leave(&self, plugin: &str, has_left: impl Fn(&WatchKey) -> bool) {
        self.watched.lock().retain(|place, watched| {
            if has_left(place) {
                watched.plugins.remove(plugin);
            }
            !watched.plugins.is_empty()
        });
    }
}

/// Follows the kind until it is not served any more.
async fn follow(watch: Watch, wakes: Wakes, clock: SharedClock) {
    let (mut version, mut failures) = (None, 0);
    loop {
        let begin = clock.monotonic();
        match watch.follow_from(&mut version, &wakes, &clock).await {
            Ok(()) if clock.monotonic() > begin + SHORTEST => {
                failures = 0;
                continue;
            }
            Ok(()) => {}
            Err(error) if is_not_found(&error) => return,
            Err(error) => {
                debug!(kind = watch.resource.kind, error = %Chain(&error), "the objects of plugins cannot be watched");
                if !keeps_version(&error) {
                    version = None;
                }
            }
        }
        failures += 1;
        clock.sleep(BACKOFF.delay(failures)).await;
    }
}

impl Watch {
    /// Follows the kind from `version`, or from now, until the watch ends.
    async fn follow_from(&self, version: &mut Option<String>, wakes: &Wakes, clock: &SharedClock) -> Result<(), Error> {
        let from = if let Some(known) = version {
            known.clone()
        } else {
            let now = self.api.list(&ListParams::default().limit(1)).await?;
            let now = now.metadata.resource_version.unwrap_or_default();
            // After the version is known: the passes see all that came before it.
            wakes.any_changed(&self.resource.group, &self.resource.kind);
            version.insert(now).clone()
        };
        let params = WatchParams::default().labels(PLUGIN_LABEL).timeout(WATCH_SECONDS);
        let mut events = pin!(self.api.watch(&params, &from).await?);
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = clock.sleep(SILENCE) => None,
            };
            let seen = match event.transpose()? {
                None => return Ok(()),
                Some(WatchEvent::Error(status)) => return Err(Error::Api(status)),
                Some(WatchEvent::Bookmark(bookmark)) => Some(bookmark.metadata.resource_version),
                Some(WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object)) => {
                    wakes.changed(&self.id(&object.metadata));
                    object.metadata.resource_version
                }
            };
            *version = seen.or_else(|| version.take());
        }
    }

    fn id(&self, object: &ObjectMeta) -> ObjectId {
        ObjectId {
            name: object.name.clone().unwrap_or_default(),
            kind: self.resource.kind.clone(),
            namespace: object.namespace.clone().unwrap_or_default(),
            group: self.resource.group.clone(),
        }
    }
}

/// Returns true if a watch can go on from its version after the error. After any other one it relists, as that of
/// client-go does.
fn keeps_version(error: &Error) -> bool {
    match error {
        Error::Api(status) => matches!(status.code, 401 | 403 | 408 | 429 | 500..),
        // The event that cannot be read is lost.
        Error::SerdeError(_) => false,
        _ => true,
    }
}

#[cfg(test)]
mod tests;
