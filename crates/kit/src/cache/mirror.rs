//! Applies watch events to the cache, then to its indexes, then notifies. No I/O.
//!
//! The order holds for every change, and for the first list as a whole: the objects first, then every index, then every
//! trigger. So no reconcile starts before all that it looks up is up to date, in whatever order indexes and triggers
//! were added. A relist after the first is merged object by object, so there is never a second copy of all objects, and
//! what it no longer contains is deleted at its end. An object that cannot be decoded keeps its last good version, or
//! is absent.

use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher::Event;
use tokio::sync::watch;

use super::faults::Faults;
use super::guarded::{Guarded, Undecodable};
use super::objects::Held;
use super::{Cache, Cacheable, Change};
use crate::key::Key;

/// The filter by which an object is cached or not.
pub(super) type Keep<K> = Box<dyn Fn(&K) -> bool + Send + Sync>;

pub(super) struct Mirror<K> {
    cache: Cache<K>,
    keep: Keep<K>,
    faults: Faults,
    synced: watch::Sender<bool>,
    /// The first list until it is complete: nobody sees a part of it.
    first: BTreeMap<Key, Held<K>>,
    /// During a later list, the cached objects that it has not contained yet.
    unlisted: BTreeSet<Key>,
}

impl<K: Cacheable> Mirror<K> {
    pub(super) fn new(cache: Cache<K>, keep: Keep<K>, faults: Faults, synced: watch::Sender<bool>) -> Self {
        Self {
            cache,
            keep,
            faults,
            synced,
            first: BTreeMap::new(),
            unlisted: BTreeSet::new(),
        }
    }

    pub(super) fn apply(&mut self, event: Event<Guarded<K>>) {
        let synced = *self.synced.borrow();
        match event {
            Event::Init => {
                self.faults.relist();
                self.first.clear();
                if synced {
                    self.unlisted = self.cache.objects.keys().into_iter().collect();
                }
            }
            Event::InitApply(Guarded(Ok(object))) if !synced => {
                self.faults.decoded(&Key::of(&object));
                if (self.keep)(&object) {
                    let key = Key::of(&object);
                    self.first.insert(key, self.cache.objects.hold(&Arc::new(object)));
                }
            }
            Event::InitApply(Guarded(Ok(object))) => {
                self.unlisted.remove(&Key::of(&object));
                self.applied(object);
            }
            Event::InitApply(Guarded(Err(bad))) => {
                self.unlisted.remove(&Key::of_meta(&bad.metadata));
                self.undecodable(&bad);
            }
            Event::InitDone => {
                self.faults.listed();
                if synced {
                    for gone in mem::take(&mut self.unlisted) {
                        self.deleted(&gone);
                    }
                } else {
                    self.first_list();
                }
            }
            Event::Apply(Guarded(Ok(object))) => self.applied(object),
            Event::Apply(Guarded(Err(bad))) => self.undecodable(&bad),
            Event::Delete(Guarded(object)) => {
                let key = object.map_or_else(|bad| Key::of_meta(&bad.metadata), |object| Key::of(&object));
                self.faults.decoded(&key);
                self.deleted(&key);
            }
        }
    }

    fn first_list(&mut self) {
        self.cache.objects.replace_all(mem::take(&mut self.first));
        let keys = self.cache.objects.keys();
        let all = || keys.iter().filter_map(|key| Some((key, self.cache.objects.get(key)?)));
        for (key, object) in all() {
            self.cache.subscribers.index(&Change::applied(key, None, &object));
        }
        self.synced.send_replace(true);
        for (key, object) in all() {
            self.cache.subscribers.notify(&Change::applied(key, None, &object));
        }
    }

    fn applied(&mut self, object: K) {
        let key = Key::of(&object);
        self.faults.decoded(&key);
        if !(self.keep)(&object) {
            self.deleted(&key);
            return;
        }
        let mut before = self.cache.objects.get(&key);
        if let Some(cached) = &before {
            if recreated(cached.meta(), object.meta()) {
                self.deleted(&key);
                before = None;
            } else if object.meta().resource_version.is_some()
                && cached.meta().resource_version == object.meta().resource_version
            {
                return;
            }
        }
        let object = Arc::new(object);
        let key = self.cache.objects.put(key, &object);
        self.changed(&Change::applied(&key, before.as_deref(), &object));
    }

    fn deleted(&mut self, key: &Key) {
        if let Some(before) = self.cache.objects.take(key) {
            self.changed(&Change::deleted(key, &before));
        }
    }

    /// The last good version stays as long as it is of the same object.
    fn undecodable(&mut self, bad: &Undecodable) {
        let key = Key::of_meta(&bad.metadata);
        self.faults.undecodable(&key, bad);
        let cached = self.cache.objects.get(&key);
        if cached.is_some_and(|cached| recreated(cached.meta(), &bad.metadata)) {
            self.deleted(&key);
        }
    }

    fn changed(&self, change: &Change<'_, K>) {
        self.cache.subscribers.index(change);
        self.cache.subscribers.notify(change);
    }
}

/// True if the object was deleted and created again under its name.
pub(super) fn recreated(before: &ObjectMeta, after: &ObjectMeta) -> bool {
    before.uid != after.uid
}

#[cfg(test)]
mod tests;
