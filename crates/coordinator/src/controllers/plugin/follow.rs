//! Watches the objects of all plugins, so that a change of one reconciles its plugin at once.
//!
//! There is one watch for each kind that any plugin has, for objects with the label of a plugin, and of their metadata alone: nothing is
//! held. A service account watches for itself, in each namespace apart. A pass adds the places that it met. The watch of a kind whose
//! definition is deleted ends, until a pass meets the kind again.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kube::core::{ApiResource, DynamicObject, DynamicResourceScope, ObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Error, Resource};
use serde::Deserialize;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, PLUGIN_LABEL};
use tidewaiter_kit::{Chain, Key, Queue, Tasks};
use tokio::sync::mpsc;
use tracing::debug;

use super::cluster::{Cluster, Place};

/// A watch ends after this time and goes on where it was.
const WATCH_SECONDS: u32 = 60;

/// A watch: the group, version and plural of its kind, its namespace, and as whom it is made.
type WatchKey = (String, String, String, Option<String>, Option<String>);

/// The watched places.
pub(super) struct Followed {
    watched: Arc<Mutex<BTreeSet<WatchKey>>>,
    added: mpsc::UnboundedSender<Watch>,
}

struct Watch {
    key: WatchKey,
    resource: ApiResource,
    api: Api<Changed>,
}

/// What a watch shows of an object that has changed. Its managed fields, which are most of its metadata, are not kept: there is an event for each
/// object that is applied.
#[derive(Clone, Debug, Deserialize)]
struct Changed {
    #[serde(deserialize_with = "tidewaiter_kit::slim::metadata")]
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
    pub(super) fn start(queue: Queue, tasks: &mut Tasks) -> Self {
        let (added, mut new) = mpsc::unbounded_channel();
        let followed = Self {
            watched: Arc::default(),
            added,
        };
        let (known, shutdown) = (Arc::clone(&followed.watched), tasks.shutdown_token());
        tasks.spawn("plugin-objects", async move {
            let mut watches = FuturesUnordered::new();
            loop {
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => return Ok::<(), Infallible>(()),
                    Some(watch) = new.recv() => watches.push(follow(watch, queue.clone())),
                    Some(ended) = watches.next(), if !watches.is_empty() => {
                        lock(&known).remove(&ended);
                    }
                }
            }
        });
        followed
    }

    /// Watches the places that are not watched yet, as `cluster` does.
    pub(super) fn add_all(&self, cluster: &Cluster, places: &[Place]) {
        for Place { kind, namespace } in places {
            let resource = &kind.resource;
            let key = (
                resource.group.clone(),
                resource.version.clone(),
                resource.plural.clone(),
                namespace.clone(),
                cluster.account.as_ref().map(ToString::to_string),
            );
            if lock(&self.watched).insert(key.clone()) {
                let client = cluster.client.clone();
                let watch = Watch {
                    key,
                    resource: resource.clone(),
                    api: match namespace {
                        Some(namespace) => Api::namespaced_with(client, namespace, resource),
                        None => Api::all_with(client, resource),
                    },
                };
                // The task ends only with the process.
                let _ = self.added.send(watch);
            }
        }
    }
}

/// Follows the kind until it is not served any more.
async fn follow(watch: Watch, queue: Queue) -> WatchKey {
    let Watch { key, resource, api } = watch;
    let config = watcher::Config::default().labels(PLUGIN_LABEL).timeout(WATCH_SECONDS);
    let mut events = watcher::watcher(api, config).default_backoff().boxed();
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Apply(object) | Event::InitApply(object) | Event::Delete(object)) => push(&queue, &object),
            Ok(Event::Init | Event::InitDone) => {}
            Err(error) if is_unserved(&error) => break,
            Err(error) => {
                debug!(kind = resource.kind, error = %Chain(&error), "the objects of plugins cannot be watched");
            }
        }
    }
    key
}

fn push(queue: &Queue, object: &Changed) {
    let labels = object.metadata.labels.as_ref();
    if let Some(plugin) = labels.and_then(|labels| labels.get(PLUGIN_LABEL)) {
        queue.push(Key::namespaced(CONTAINERSHIP_NAMESPACE, plugin));
    }
}

fn is_unserved(error: &watcher::Error) -> bool {
    let (watcher::Error::InitialListFailed(Error::Api(status))
    | watcher::Error::WatchStartFailed(Error::Api(status))
    | watcher::Error::WatchFailed(Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 404
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
