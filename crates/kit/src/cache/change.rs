//! A change of a cached object, and the triggers that are called for it.

use crate::key::Key;

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

/// Pushes keys into a queue for each change of an object of kind `K`.
pub struct Trigger<K> {
    call: Call<K>,
    same: fn(&K, &K) -> bool,
}

impl<K> Trigger<K> {
    /// Calls `call` for each change. It runs in the task of the watch, so it must return at once.
    #[must_use]
    pub fn calls(call: impl Fn(&Change<'_, K>) + Send + Sync + 'static) -> Self {
        Self {
            call: Box::new(call),
            same: |_, _| false,
        }
    }

    /// Ignores an update for which `same` is true of the object before and after: a heartbeat, or fields that the
    /// controller does not read.
    #[must_use]
    pub fn unless(self, same: fn(&K, &K) -> bool) -> Self {
        Self { same, ..self }
    }

    pub(super) fn call(&self, change: &Change<'_, K>) {
        if let (Some(before), Some(after)) = (change.before, change.after)
            && (self.same)(before, after)
        {
            return;
        }
        (self.call)(change);
    }
}
