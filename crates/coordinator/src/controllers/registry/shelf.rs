//! Which registries there are, and the pull secret that works for each: made by one controller, read by those that act in each namespace.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::{Cache, Key, Metadata, Queue};

use super::pull_secret::PullSecret;
use super::stored::StoredRegistry;
use crate::controllers::containership::Entries;

/// The registries of the cluster. Clones share them.
#[derive(Clone)]
pub(in crate::controllers) struct Registries {
    cache: Cache<StoredRegistry>,
    shelf: Arc<Shelf>,
}

#[derive(Default)]
struct Shelf {
    ready: Mutex<BTreeMap<String, Arc<PullSecret>>>,
    wakes: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl Registries {
    pub(super) fn new(cache: Cache<StoredRegistry>) -> Self {
        Self {
            cache,
            shelf: Arc::default(),
        }
    }

    /// Queues every namespace when a registry comes, goes, or gets another pull secret.
    pub(in crate::controllers) fn notify(&self, queue: &Queue, namespaces: &Cache<Metadata<Namespace>>) {
        let (queue, namespaces) = (queue.clone(), namespaces.clone());
        let wake = move || {
            for key in namespaces.keys() {
                queue.push(key);
            }
        };
        lock(&self.shelf.wakes).push(Box::new(wake));
    }

    /// The Registry of this id.
    pub(super) fn get(&self, id: &str) -> Option<Arc<StoredRegistry>> {
        self.cache.get(&Key::namespaced(CONTAINERSHIP_NAMESPACE, id))
    }

    /// The ids of all registries; None while they are not known.
    pub(super) fn ids(&self) -> Option<BTreeSet<String>> {
        let known = self.cache.is_synced();
        known.then(|| self.cache.keys().iter().map(|key| key.name().to_owned()).collect())
    }

    /// What to attach to service accounts; None while the registries are not known.
    pub(in crate::controllers) fn entries(&self) -> Option<Entries> {
        let all = self.ids()?;
        let ready: BTreeSet<String> = lock(&self.shelf.ready).keys().cloned().collect();
        let (ready, pending) = all.into_iter().partition(|id| ready.contains(id));
        Some(Entries { ready, pending })
    }

    /// The pull secrets that work, of the registries that exist.
    pub(super) fn ready(&self, ids: &BTreeSet<String>) -> Vec<Arc<PullSecret>> {
        let ready = lock(&self.shelf.ready);
        let existing = ready.iter().filter(|(id, _)| ids.contains(*id));
        existing.map(|(_, secret)| Arc::clone(secret)).collect()
    }

    /// The pull secret that works for this registry.
    pub(super) fn pull_secret(&self, id: &str) -> Option<Arc<PullSecret>> {
        lock(&self.shelf.ready).get(id).cloned()
    }

    /// From now on this one works.
    pub(super) fn put(&self, id: &str, secret: Arc<PullSecret>) {
        let digest = secret.digest().clone();
        let before = lock(&self.shelf.ready).insert(id.to_owned(), secret);
        if before.is_none_or(|before| *before.digest() != digest) {
            self.wake();
        }
    }

    /// The registry is gone.
    pub(super) fn remove(&self, id: &str) {
        lock(&self.shelf.ready).remove(id);
        self.wake();
    }

    fn wake(&self) {
        for wake in lock(&self.shelf.wakes).iter() {
            wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for Registries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registries")
            .field("cache", &self.cache)
            .finish_non_exhaustive()
    }
}
