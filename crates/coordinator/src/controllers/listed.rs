//! The custom resources of one kind as they take effect, for the controllers that act on them.
//!
//! A resource takes effect with the spec that the cloud lists, whatever becomes of its copy in the cluster, and what
//! was made of it stays as long as the cloud lists it. An edit of a copy therefore changes nothing, not even until the
//! mirror has undone it. Without a mirror, a resource takes effect as it is while it is there and not being deleted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::core::NamespaceResourceScope;
use kube::core::object::HasSpec;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_kit::{Cache, Cacheable, Key, Kit, Tasks};

use crate::mirror::{Changed, CloudList, Mirrored};

/// The resources of one kind in the namespace `containership-core`.
#[derive(Clone)]
pub(super) struct Listed<K> {
    copies: Cache<K>,
    effective: Cache<K>,
    /// None without a mirror.
    list: Option<CloudList<K>>,
    revision: Arc<AtomicU64>,
}

impl<K> Listed<K>
where
    K: Cacheable + HasSpec<Spec: Clone + PartialEq + Serialize>,
{
    pub(super) fn new(copies: Cache<K>, list: Option<CloudList<K>>) -> Self {
        let lists = list.clone();
        let view = copies.view(move |copy| match &lists {
            Some(list) => list.effective(copy),
            None => copy.meta().deletion_timestamp.is_none().then(|| Arc::clone(copy)),
        });
        let effective = view.cache().clone();
        let revision = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&revision);
        let count = move || {
            counted.fetch_add(1, Ordering::SeqCst);
        };
        if let Some(list) = &list {
            let all = copies.clone();
            list.notify(move |changed| {
                count();
                let names = changed.concerned(|| all.keys().iter().map(|key| key.name().to_owned()).collect());
                for name in names {
                    view.refresh(&key_of(&name));
                }
            });
        } else {
            effective.derive(move |change| {
                if change.before.map(HasSpec::spec) != change.after.map(HasSpec::spec) {
                    count();
                }
            });
        }
        Self {
            copies,
            effective,
            list,
            revision,
        }
    }

    /// Of the mirror, or, without a mirror, with a cache that is optional: a cluster may not have the definition yet.
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
}

impl<K: Cacheable> Listed<K> {
    /// The resources that take effect, each as it does.
    pub(super) fn cache(&self) -> &Cache<K> {
        &self.effective
    }

    /// The resources as they are in the cluster, whether or not they take effect.
    pub(super) fn copies(&self) -> &Cache<K> {
        &self.copies
    }

    /// The resource as it takes effect, if it does.
    pub(super) fn get(&self, name: &str) -> Option<Arc<K>> {
        self.effective.get(&key_of(name))
    }

    /// The resource as it takes effect; while the cluster does not have it, as the cloud lists it.
    pub(super) fn get_or_listed(&self, name: &str) -> Option<Arc<K>> {
        let listed = || self.list.as_ref()?.listed().get(name)?.clone();
        self.get(name).or_else(listed)
    }

    /// The number of times that the cloud has listed something else: changes of the copies do not count. Without a
    /// mirror, the number of times that a resource has changed. It is counted before anything that reads the resources
    /// is notified of the change.
    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::SeqCst)
    }

    /// Returns true if what was made of the resource of this name stays, although the cluster may not have it.
    pub(super) fn retains(&self, name: &str) -> bool {
        let found = self.copies.get(&key_of(name));
        let meta = found.as_ref().map(|found| found.meta());
        match &self.list {
            Some(list) => list.retains(name, meta),
            None => meta.is_some_and(|meta| meta.deletion_timestamp.is_none()),
        }
    }

    /// Returns true if there is a mirror, and it is known what the cloud does not list.
    pub(super) fn has_complete_list(&self) -> bool {
        self.list.as_ref().is_some_and(CloudList::is_complete)
    }

    /// Returns true if the cloud has listed the kind since the start.
    pub(super) fn is_current(&self) -> bool {
        self.list.as_ref().is_none_or(CloudList::is_current)
    }

    /// Returns true if the cluster has every resource that the cloud lists. What is missing was deleted, and the mirror
    /// restores it.
    pub(super) fn has_all(&self) -> bool {
        let present = |name: &str| self.get(name).is_some();
        self.list.as_ref().is_none_or(|list| list.is_covered(present))
    }

    /// Calls `wake` when the cloud lists others. That it lists one as something else is a change of [`Listed::cache`].
    pub(super) fn notify_list(&self, wake: impl Fn(&Changed) + Send + Sync + 'static) {
        if let Some(list) = &self.list {
            list.notify(move |changed| {
                if changed.changes_names() {
                    wake(changed);
                }
            });
        }
    }
}

/// The key of the custom resource of this name.
pub(super) fn key_of(name: &str) -> Key {
    Key::namespaced(CONTAINERSHIP_NAMESPACE, name)
}
