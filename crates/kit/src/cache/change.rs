//! A change of a cached object, and the triggers that are called for it.

use super::Cache;
use crate::key::Key;
use crate::queue::Queue;

/// One change of a cached object. An object that was deleted and created again under its name is two changes.
#[derive(Debug)]
pub struct Change<'a, K> {
    /// The object as it was cached before; None when it is new.
    pub before: Option<&'a K>,
    /// The object as it is cached now; None when it is gone.
    pub after: Option<&'a K>,
    object: &'a K,
    key: &'a Key,
}

impl<'a, K> Change<'a, K> {
    /// The object is new, or differs from `before`.
    #[must_use]
    pub fn applied(key: &'a Key, before: Option<&'a K>, after: &'a K) -> Self {
        Self {
            before,
            after: Some(after),
            object: after,
            key,
        }
    }

    /// The object is gone.
    #[must_use]
    pub fn deleted(key: &'a Key, before: &'a K) -> Self {
        Self {
            before: Some(before),
            after: None,
            object: before,
            key,
        }
    }

    /// The object: as it is now, or as it was last.
    #[must_use]
    pub fn object(&self) -> &'a K {
        self.object
    }

    /// The key of the object, whose text the cache holds. Keep this one, and not another with the same text.
    #[must_use]
    pub fn key(&self) -> &'a Key {
        self.key
    }

    /// Both versions of the object, as far as there are two.
    pub fn versions(&self) -> impl Iterator<Item = &'a K> {
        self.before.into_iter().chain(self.after)
    }
}

type Call<K> = Box<dyn Fn(&Change<'_, K>) + Send + Sync>;

/// Acts on each change of an object of kind `K`, most often by pushing keys into a queue.
pub struct Trigger<K> {
    call: Call<K>,
    same: fn(&K, &K) -> bool,
    /// The queue that it fills, if it is made from one.
    queue: Option<Queue>,
    is_awaited: bool,
    is_seeded: bool,
}

impl<K> Trigger<K> {
    /// Calls `call` for each change, also while this replica stands by. It runs in the task of the watch, so it must
    /// return at once. For keys to reconcile: [`Queue::trigger`].
    #[must_use]
    pub fn calls(call: impl Fn(&Change<'_, K>) + Send + Sync + 'static) -> Self {
        Self {
            call: Box::new(call),
            same: |_, _| false,
            queue: None,
            is_awaited: true,
            is_seeded: true,
        }
    }

    /// Calls `call`, which pushes keys into `queue`.
    pub(crate) fn pushes(queue: &Queue, call: impl Fn(&Queue, &Change<'_, K>) + Send + Sync + 'static) -> Self {
        let filled = queue.clone();
        Self {
            queue: Some(queue.clone()),
            ..Self::calls(move |change| call(&filled, change))
        }
    }

    /// Ignores an update for which `same` is true of the object before and after: a heartbeat, or fields that the
    /// controller does not read.
    #[must_use]
    pub fn unless(self, same: fn(&K, &K) -> bool) -> Self {
        Self { same, ..self }
    }

    /// Lets the controller begin before the first list of the cache is complete: it can do its work without.
    #[must_use]
    pub fn unawaited(self) -> Self {
        Self {
            is_awaited: false,
            ..self
        }
    }

    /// Ignores the objects that exist when it is added or when its replica begins to lead, because another trigger of
    /// the queue pushes all keys. The first list is awaited all the same.
    #[must_use]
    pub fn changes_only(self) -> Self {
        Self {
            is_seeded: false,
            ..self
        }
    }

    /// The keys of the objects in `cache` for which it is called before they change.
    pub(super) fn seeds(&self, cache: &Cache<K>) -> Vec<Key> {
        if self.is_seeded && cache.is_synced() {
            cache.keys()
        } else {
            Vec::new()
        }
    }

    /// The queue that it fills, and whether the controller waits for the first list of the cache.
    pub(super) fn queue(&self) -> Option<(&Queue, bool)> {
        self.queue.as_ref().map(|queue| (queue, self.is_awaited))
    }

    pub(super) fn call(&self, change: &Change<'_, K>) {
        if self.queue.as_ref().is_some_and(Queue::stands_by) {
            return;
        }
        if let (Some(before), Some(after)) = (change.before, change.after)
            && (self.same)(before, after)
        {
            return;
        }
        (self.call)(change);
    }
}
