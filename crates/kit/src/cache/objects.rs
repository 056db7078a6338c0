//! The objects of a cache by their keys: each behind an `Arc`, or packed.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use parking_lot::RwLock;

use super::Cacheable;
use crate::key::Key;
use crate::packed::{Packed, Packing};

/// The cached objects of one kind.
pub(super) struct Objects<K> {
    held: RwLock<BTreeMap<Key, Held<K>>>,
    packing: Option<Box<dyn Packing<K>>>,
}

/// One object as the cache holds it.
pub(super) enum Held<K> {
    Whole(Arc<K>),
    Packed(Packed),
}

impl<K> Objects<K> {
    pub(super) fn new(packing: Option<Box<dyn Packing<K>>>) -> Self {
        Self {
            held: RwLock::default(),
            packing,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.held.read().len()
    }

    pub(super) fn keys(&self) -> Vec<Key> {
        self.held.read().keys().cloned().collect()
    }

    /// Replaces everything.
    pub(super) fn replace_all(&self, objects: BTreeMap<Key, Held<K>>) {
        *self.held.write() = objects;
    }
}

impl<K: Cacheable> Objects<K> {
    pub(super) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.held.read().get(key).map(|held| self.open(held))
    }

    /// Returns the key under which it is held, which others share.
    pub(super) fn put(&self, key: Key, object: &Arc<K>) -> Key {
        let held = self.hold(object);
        match self.held.write().entry(key) {
            Entry::Occupied(mut there) => {
                there.insert(held);
                there.key().clone()
            }
            Entry::Vacant(place) => {
                let key = place.key().clone();
                place.insert(held);
                key
            }
        }
    }

    pub(super) fn take(&self, key: &Key) -> Option<Arc<K>> {
        let held = self.held.write().remove(key)?;
        Some(self.open(&held))
    }

    pub(super) fn hold(&self, object: &Arc<K>) -> Held<K> {
        match &self.packing {
            Some(packing) => Held::Packed(packing.pack(object)),
            None => Held::Whole(Arc::clone(object)),
        }
    }

    fn open(&self, held: &Held<K>) -> Arc<K> {
        match (held, &self.packing) {
            (Held::Whole(object), _) => Arc::clone(object),
            (Held::Packed(packed), Some(packing)) => Arc::new(packing.unpack(packed)),
            (Held::Packed(_), None) => unreachable!("only a packing cache holds packed objects"),
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;
    use crate::packed::Packer;

    fn node(number: usize) -> Arc<Node> {
        let name = format!("i-{number:017x}");
        let labels: serde_json::Map<_, _> = (0..20)
            .map(|label| (format!("example.com/label-{label}"), json!(format!("value-{label}"))))
            .collect();
        let node = json!({"metadata": {"name": name, "uid": format!("uid-{number}"), "labels": labels}});
        serde_json::from_value(node).unwrap()
    }

    #[test]
    fn what_was_put_comes_back() {
        let packing = || Some(Box::new(Packer::new()) as Box<dyn Packing<Node>>);
        for objects in [Objects::new(None), Objects::new(packing())] {
            for number in 0..50 {
                objects.put(Key::of(&*node(number)), &node(number));
            }
            for number in 0..50 {
                assert_eq!(objects.get(&Key::of(&*node(number))), Some(node(number)));
            }
            let mut changed = (*node(7)).clone();
            changed.metadata.labels = None;
            let (key, changed) = (Key::of(&changed), Arc::new(changed));
            objects.put(key.clone(), &changed);
            assert_eq!((objects.get(&key), objects.len()), (Some(Arc::clone(&changed)), 50));
            assert_eq!((objects.take(&key), objects.len()), (Some(changed), 49));
            assert_eq!((objects.take(&key), objects.get(&key)), (None, None));
        }
    }
}
