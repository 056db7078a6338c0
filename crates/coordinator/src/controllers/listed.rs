//! The custom resources of one kind, and which of them the cloud lists: for the controllers that act on them.
//!
//! A resource takes effect if the cloud lists it, whatever becomes of it in the cluster, and what was made of it stays as long. Without a
//! mirror, and before the list is known, a resource takes effect while it is there and not being deleted.

use std::sync::Arc;

use kube::core::NamespaceResourceScope;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::{Cache, Cacheable, Key, Kit, Tasks};

use crate::mirror::{CloudList, Mirrored};

/// The resources of one kind in the namespace `containership-core`.
pub(super) struct Listed<K> {
    cache: Cache<K>,
    /// None without a mirror.
    list: Option<CloudList>,
}

impl<K: Cacheable> Listed<K> {
    pub(super) fn new(cache: Cache<K>, list: Option<CloudList>) -> Self {
        Self { cache, list }
    }

    /// With the mirror's cache, or, without a mirror, with one that is optional: a cluster may not have the definition yet.
    pub(super) fn start(mirrored: Option<Mirrored<K>>, reader: &Client, kit: &Kit, tasks: &mut Tasks) -> Self
    where
        K: DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
    {
        if let Some(Mirrored { list, cache }) = mirrored {
            return Self::new(cache, Some(list));
        }
        let cache = Cache::namespaced(reader.clone(), CONTAINERSHIP_NAMESPACE).optional();
        Self::new(cache.start(tasks, kit), None)
    }

    pub(super) fn cache(&self) -> &Cache<K> {
        &self.cache
    }

    /// What the cloud lists; None without a mirror.
    pub(super) fn list(&self) -> Option<&CloudList> {
        self.list.as_ref()
    }

    /// The resource in the cluster, whether or not it takes effect.
    pub(super) fn find(&self, name: &str) -> Option<Arc<K>> {
        self.cache.get(&key_of(name))
    }

    /// The resource, if it takes effect.
    pub(super) fn get(&self, name: &str) -> Option<Arc<K>> {
        self.find(name).filter(|resource| self.counts(resource))
    }

    /// Whether the resource takes effect.
    pub(super) fn counts(&self, resource: &K) -> bool {
        let meta = resource.meta();
        self.list
            .as_ref()
            .map_or(meta.deletion_timestamp.is_none(), |list| list.counts(meta))
    }

    /// Whether what was made of the resource of this name stays, although the cluster may not have it.
    pub(super) fn retains(&self, name: &str) -> bool {
        let found = self.find(name);
        let meta = found.as_ref().map(|found| found.meta());
        match &self.list {
            Some(list) => list.retains(name, meta),
            None => meta.is_some_and(|meta| meta.deletion_timestamp.is_none()),
        }
    }

    /// Whether it is known what the cloud does not list.
    pub(super) fn is_complete(&self) -> bool {
        self.list.as_ref().is_some_and(CloudList::is_complete)
    }

    /// Whether the cluster has every resource that the cloud lists. What is missing was deleted, and the mirror restores it.
    pub(super) fn has_all(&self) -> bool {
        let present = |name: &str| self.find(name).is_some();
        self.list.as_ref().is_none_or(|list| list.is_covered(present))
    }

    /// Calls `wake` when the cloud lists others.
    pub(super) fn notify_list(&self, wake: impl Fn() + Send + Sync + 'static) {
        if let Some(list) = &self.list {
            list.notify(move |_| wake());
        }
    }
}

impl<K> Clone for Listed<K> {
    fn clone(&self) -> Self {
        Self {
            cache: self.cache.clone(),
            list: self.list.clone(),
        }
    }
}

/// The key of the custom resource of this name.
pub(super) fn key_of(name: &str) -> Key {
    Key::namespaced(CONTAINERSHIP_NAMESPACE, name)
}
