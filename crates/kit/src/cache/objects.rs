//! The objects of a cache by their keys, each packed.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use super::Cacheable;
use crate::key::Key;
use crate::packed::{Packed, Packer};

/// What is cached of one kind.
pub(super) struct Objects<K> {
    packed: RwLock<HashMap<Key, Packed>>,
    packer: Packer<K>,
}

impl<K> Objects<K> {
    pub(super) fn new() -> Self {
        Self {
            packed: RwLock::default(),
            packer: Packer::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.read().len()
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.read().keys().cloned().collect()
    }

    /// Holds exactly these from now on.
    pub(super) fn replace_all(&self, objects: HashMap<Key, Packed>) {
        *self.write() = objects;
    }

    fn read(&self) -> RwLockReadGuard<'_, HashMap<Key, Packed>> {
        self.packed.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, HashMap<Key, Packed>> {
        self.packed.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<K: Cacheable> Objects<K> {
    pub(super) fn get(&self, key: &Key) -> Option<K> {
        self.read().get(key).map(|packed| self.packer.unpack(packed))
    }

    pub(super) fn put(&self, key: Key, object: &K) {
        let packed = self.packer.pack(object);
        match self.write().entry(key) {
            // The key that is there is shared with others already.
            Entry::Occupied(mut there) => drop(there.insert(packed)),
            Entry::Vacant(place) => drop(place.insert(packed)),
        }
    }

    pub(super) fn take(&self, key: &Key) -> Option<K> {
        let packed = self.write().remove(key)?;
        Some(self.packer.unpack(&packed))
    }

    pub(super) fn pack(&self, object: &K) -> Packed {
        self.packer.pack(object)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    fn node(number: usize) -> Node {
        let name = format!("i-{number:017x}");
        let labels: serde_json::Map<_, _> = (0..20)
            .map(|label| (format!("example.com/label-{label}"), json!(format!("value-{label}"))))
            .collect();
        let node = json!({"metadata": {"name": name, "uid": format!("uid-{number}"), "labels": labels}});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn what_was_put_comes_back() {
        let objects = Objects::new();
        for number in 0..50 {
            objects.put(Key::of(&node(number)), &node(number));
        }
        for number in 0..50 {
            assert_eq!(objects.get(&Key::of(&node(number))), Some(node(number)));
        }
        let mut changed = node(7);
        changed.metadata.labels = None;
        objects.put(Key::of(&changed), &changed);
        assert_eq!(
            (objects.get(&Key::of(&changed)), objects.len()),
            (Some(changed.clone()), 50)
        );
        assert_eq!(
            (objects.take(&Key::of(&changed)), objects.len()),
            (Some(changed.clone()), 49)
        );
        assert_eq!(
            (objects.take(&Key::of(&changed)), objects.get(&Key::of(&changed))),
            (None, None)
        );
    }
}
