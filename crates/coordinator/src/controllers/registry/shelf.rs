//! The registries, and the pull secret that works for each: made by one controller, read by those that act in each
//! namespace.
//!
//! A registry exists while the cloud lists it. Its Registry may vanish meanwhile, because a person deletes it or its
//! definition: the mirror restores it, and nothing that was made of it goes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::Resource as _;
use parking_lot::Mutex;
use tidewaiter_api::containership::Registry;
use tidewaiter_api::names::registry_of_secret;
use tidewaiter_kit::{Cache, Desired as _, Key, Metadata, Queue};

use super::pull_secret::PullSecret;
use super::stored::StoredRegistry;
use crate::controllers::listed::key_of;
use crate::mirror::{Changed, CloudList, Effect, is_id};

/// The registries of the cluster. Clones share them.
#[derive(Clone)]
pub(in crate::controllers) struct Registries {
    resources: Cache<StoredRegistry>,
    /// None without a mirror.
    lists: Option<RegistryLists>,
    shelf: Arc<Shelf>,
}

/// The cloud's lists of registries.
#[derive(Clone)]
pub(in crate::controllers) struct RegistryLists {
    pub(in crate::controllers) registries: CloudList<Registry>,
    /// The Secrets with their credentials.
    pub(in crate::controllers) credentials: CloudList<Secret>,
}

/// The pull secrets that belong to an account.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::controllers) struct Entries {
    /// To attach.
    pub(in crate::controllers) ready: BTreeSet<String>,
    /// Of registries that exist and have no working credential so far: left as they are.
    pub(in crate::controllers) pending: BTreeSet<String>,
    /// True if the cloud's list is not known yet: then every entry that is an id of the cloud is left as it is.
    pub(in crate::controllers) unknown: bool,
}

impl Entries {
    /// Returns true if every registry has been answered.
    pub(in crate::controllers) fn are_final(&self) -> bool {
        self.pending.is_empty() && !self.unknown
    }

    /// Returns true if an entry of this name stays.
    pub(in crate::controllers) fn retain(&self, name: &str) -> bool {
        self.ready.contains(name) || self.pending.contains(name) || (self.unknown && is_id(name))
    }
}

#[derive(Default)]
struct Shelf {
    ready: Mutex<BTreeMap<String, Arc<PullSecret>>>,
    wakes: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl Registries {
    pub(super) fn new(resources: Cache<StoredRegistry>, lists: Option<RegistryLists>) -> Self {
        let registries = Self {
            resources,
            lists,
            shelf: Arc::default(),
        };
        if let Some(lists) = &registries.lists {
            let woken = registries.clone();
            lists.registries.notify(move |changed| {
                if woken.is_affected(changed) {
                    woken.shelf.wake();
                }
            });
        }
        registries
    }

    /// Returns true if namespaces lack or have too much after this change of the list: a registry went, or came back
    /// before the controller removed it. A new registry affects no namespace until its credential works.
    fn is_affected(&self, changed: &Changed) -> bool {
        let affects = |name: &String| !self.exists(name) || self.pull_secret(name).is_some();
        changed.all || changed.names.iter().any(affects)
    }

    /// Queues each registry, by its id, of which the cloud lists something else than before.
    pub(super) fn notify_list(&self, queue: &Queue) {
        let Some(lists) = &self.lists else { return };
        let (queue, resources, secrets) = (queue.clone(), self.resources.clone(), Arc::clone(&self.shelf));
        let wake = move |changed: &Changed| {
            let all = || {
                let known = resources.keys().into_iter().map(|key| key.name().to_owned());
                known.chain(secrets.ready.lock().keys().cloned()).collect()
            };
            for name in changed.concerned(all) {
                queue.push(Key::new(registry_of_secret(&name).unwrap_or(&name)));
            }
        };
        lists.registries.notify(wake.clone());
        lists.credentials.notify(wake);
    }

    /// Queues every namespace when a registry goes or gets another pull secret.
    pub(in crate::controllers) fn notify(&self, queue: &Queue, namespaces: &Cache<Metadata<Namespace>>) {
        let (queue, namespaces) = (queue.clone(), namespaces.clone());
        let wake = move || {
            for key in namespaces.keys() {
                queue.push(key);
            }
        };
        self.shelf.wakes.lock().push(Box::new(wake));
    }

    /// The cloud's lists; None without a mirror.
    pub(super) fn lists(&self) -> Option<&RegistryLists> {
        self.lists.as_ref()
    }

    /// The Registry of this id, if the cluster has one that takes effect.
    pub(super) fn get(&self, id: &str) -> Option<Arc<StoredRegistry>> {
        let registry = self.resources.get(&key_of(id))?;
        let lives = registry.meta().deletion_timestamp.is_none();
        let counts = match self.lists.as_ref().map(|lists| lists.registries.effect(id)) {
            Some(Effect::Listed(_)) => true,
            Some(Effect::Nothing) => false,
            Some(Effect::Own) | None => lives,
        };
        counts.then_some(registry)
    }

    /// Returns true if the registries are known.
    pub(super) fn are_known(&self) -> bool {
        self.resources.is_synced()
    }

    /// Returns true if the registry exists, so that what was made of it stays.
    pub(super) fn exists(&self, id: &str) -> bool {
        let found = self.resources.get(&key_of(id));
        let meta = found.as_ref().map(|found| found.meta());
        match &self.lists {
            Some(lists) => lists.registries.retains(id, meta),
            None => meta.is_some_and(|meta| meta.deletion_timestamp.is_none()),
        }
    }

    /// The pull secrets to attach to service accounts; None while the registries are not known.
    pub(in crate::controllers) fn entries(&self) -> Option<Entries> {
        let known = self.are_known();
        known.then(|| {
            let ready: BTreeSet<String> = self.ready().iter().map(|secret| secret.name().to_owned()).collect();
            let list = self.lists.as_ref().map(|lists| &lists.registries);
            let listed = list.map(CloudList::listed).unwrap_or_default();
            let listed = listed.keys().cloned();
            let present = self.resources.keys().into_iter().map(|key| key.name().to_owned());
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
        let ready: Vec<_> = self.shelf.ready.lock().values().cloned().collect();
        ready.into_iter().filter(|secret| self.exists(secret.name())).collect()
    }

    /// The pull secret that works for this registry.
    pub(super) fn pull_secret(&self, id: &str) -> Option<Arc<PullSecret>> {
        self.shelf.ready.lock().get(id).cloned()
    }

    /// Stores the verified pull secret and wakes the subscribers if it changed.
    pub(super) fn put(&self, id: &str, secret: Arc<PullSecret>) {
        let digest = secret.digest().clone();
        let before = self.shelf.ready.lock().insert(id.to_owned(), secret);
        if before.is_none_or(|before| *before.digest() != digest) {
            self.shelf.wake();
        }
    }

    /// The registry is gone. If a list of the cloud said so, that list has queued the namespaces.
    pub(super) fn remove(&self, id: &str) {
        let was_ready = self.shelf.ready.lock().remove(id).is_some();
        let is_complete = |lists: &RegistryLists| lists.registries.is_complete();
        if was_ready && !self.lists.as_ref().is_some_and(is_complete) {
            self.shelf.wake();
        }
    }
}

impl Shelf {
    fn wake(&self) {
        for wake in self.wakes.lock().iter() {
            wake();
        }
    }
}
