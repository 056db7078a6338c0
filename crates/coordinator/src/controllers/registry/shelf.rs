//! Which registries there are, and the pull secret that works for each: made by one controller, read by those that act in each namespace.
//!
//! A registry exists while the cloud lists it. Its Registry may vanish meanwhile, because a person deletes it or its definition: the mirror
//! restores it, and nothing that was made of it goes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_kit::{Cache, Desired as _, Key, Metadata, Queue};

use super::pull_secret::PullSecret;
use super::stored::StoredRegistry;
use crate::controllers::containership::Entries;
use crate::controllers::listed::Listed;
use crate::mirror::CloudList;

/// The registries of the cluster. Clones share them.
#[derive(Clone)]
pub(in crate::controllers) struct Registries {
    resources: Listed<StoredRegistry>,
    shelf: Arc<Shelf>,
}

#[derive(Default)]
struct Shelf {
    ready: Mutex<BTreeMap<String, Arc<PullSecret>>>,
    wakes: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl Registries {
    pub(super) fn new(cache: Cache<StoredRegistry>, listed: CloudList) -> Self {
        let registries = Self {
            resources: Listed::new(cache, Some(listed)),
            shelf: Arc::default(),
        };
        let shelf = Arc::clone(&registries.shelf);
        registries.resources.notify_list(move || shelf.wake());
        registries
    }

    /// Queues every registry, by its id, when the cloud lists others.
    pub(super) fn notify_list(&self, queue: &Queue) {
        let (queue, cache, ready) = (queue.clone(), self.resources.cache().clone(), Arc::clone(&self.shelf));
        self.resources.notify_list(move || {
            let known = cache.keys();
            let ready: Vec<String> = lock(&ready.ready).keys().cloned().collect();
            for id in known.iter().map(Key::name).chain(ready.iter().map(String::as_str)) {
                queue.push(Key::new(id));
            }
        });
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

    /// The Registry of this id, if the cluster has one that takes effect.
    pub(super) fn get(&self, id: &str) -> Option<Arc<StoredRegistry>> {
        self.resources.get(id)
    }

    /// Whether the registries are known.
    pub(super) fn are_known(&self) -> bool {
        self.resources.cache().is_synced()
    }

    /// Whether the registry exists, so that what was made of it stays.
    pub(super) fn exists(&self, id: &str) -> bool {
        self.resources.retains(id)
    }

    /// What to attach to service accounts; None while the registries are not known.
    pub(in crate::controllers) fn entries(&self) -> Option<Entries> {
        let known = self.are_known();
        known.then(|| {
            let ready: BTreeSet<String> = self.ready().iter().map(|secret| secret.name().to_owned()).collect();
            let list = self.resources.list();
            let listed = list.map(CloudList::names).unwrap_or_default();
            let present = self
                .resources
                .cache()
                .keys()
                .into_iter()
                .map(|key| key.name().to_owned());
            let all = present.filter(|id| self.exists(id)).chain(listed);
            let pending = all.filter(|id| !ready.contains(id)).collect();
            let unknown = list.is_some_and(|list| !list.is_complete());
            Entries {
                ready,
                pending,
                unknown,
            }
        })
    }

    /// The pull secrets that work, of the registries that exist.
    pub(super) fn ready(&self) -> Vec<Arc<PullSecret>> {
        let ready: Vec<_> = lock(&self.shelf.ready).values().cloned().collect();
        ready.into_iter().filter(|secret| self.exists(secret.name())).collect()
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
            self.shelf.wake();
        }
    }

    /// The registry is gone.
    pub(super) fn remove(&self, id: &str) {
        lock(&self.shelf.ready).remove(id);
        self.shelf.wake();
    }
}

impl Shelf {
    fn wake(&self) {
        for wake in lock(&self.wakes).iter() {
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
            .field("cache", self.resources.cache())
            .finish_non_exhaustive()
    }
}
