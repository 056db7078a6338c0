//! A cache that a test fills by hand, through the same code as a watch does.

use kube::runtime::watcher::Event;

use super::faults::Faults;
use super::guarded::Guarded;
use super::health::Health;
use super::mirror::Mirror;
use super::{Cache, Cacheable, assemble};
use crate::Kit;

/// Fills one cache.
pub struct Feed<K>(Mirror<K>);

impl<K: Cacheable> Feed<K> {
    /// An empty cache whose first list is not complete.
    #[must_use]
    pub fn new(kit: &Kit) -> (Self, Cache<K>) {
        Self::keeping(kit, |_| true)
    }

    /// A feed and its cache, which drops the objects for which `keep` is false.
    pub(super) fn keeping(kit: &Kit, keep: fn(&K) -> bool) -> (Self, Cache<K>) {
        let health = Health::new(kit.clock.clone(), kit.metrics.cache_stale.with_label_values(&["fed"]));
        let faults = Faults::of::<K>(kit.undecodable.clone(), &kit.metrics);
        let (mirror, cache) = assemble(Box::new(keep), None, faults, health);
        (Self(mirror), cache)
    }

    /// Lists these objects.
    pub fn list(&mut self, objects: impl IntoIterator<Item = K>) {
        self.apply(Event::Init);
        for object in objects {
            self.apply(Event::InitApply(object));
        }
        self.apply(Event::InitDone);
    }

    /// The object was created or changed.
    pub fn put(&mut self, object: K) {
        self.apply(Event::Apply(object));
    }

    /// The object was deleted.
    pub fn delete(&mut self, object: K) {
        self.apply(Event::Delete(object));
    }

    /// An event of the watch.
    pub fn apply(&mut self, event: Event<K>) {
        self.0.apply(decoded(event));
    }
}

fn decoded<K>(event: Event<K>) -> Event<Guarded<K>> {
    let good = |object| Guarded(Ok(object));
    match event {
        Event::Apply(object) => Event::Apply(good(object)),
        Event::Delete(object) => Event::Delete(good(object)),
        Event::Init => Event::Init,
        Event::InitApply(object) => Event::InitApply(good(object)),
        Event::InitDone => Event::InitDone,
    }
}
