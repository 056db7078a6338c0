//! The objects of a cache, each packed into a few hundred bytes.
//!
//! Objects of one kind resemble each other: the first one that comes is the dictionary by which the others are compressed (LZ4), as
//! JSON. What they have in common, which is most of them, is held once. Reading one unpacks it: some microseconds, paid
//! for each change and not for each object that is held.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::marker::PhantomData;
use std::sync::{OnceLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use lz4_flex::block::{compress_prepend_size_with_dict, decompress_size_prepended_with_dict};

use super::Cacheable;
use crate::key::Key;

pub(super) type Packed = Box<[u8]>;

/// What is cached of one kind.
pub(super) struct Objects<K> {
    packed: RwLock<HashMap<Key, Packed>>,
    /// The first object that was packed, as JSON.
    dictionary: OnceLock<Box<[u8]>>,
    kind: PhantomData<fn() -> K>,
}

impl<K> Objects<K> {
    pub(super) fn new() -> Self {
        Self {
            packed: RwLock::default(),
            dictionary: OnceLock::new(),
            kind: PhantomData,
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
        let packed = self.read().get(key)?.clone();
        Some(self.unpack(&packed))
    }

    pub(super) fn put(&self, key: Key, object: &K) {
        let packed = self.pack(object);
        match self.write().entry(key) {
            // The key that is there is shared with others already.
            Entry::Occupied(mut there) => drop(there.insert(packed)),
            Entry::Vacant(place) => drop(place.insert(packed)),
        }
    }

    pub(super) fn take(&self, key: &Key) -> Option<K> {
        let packed = self.write().remove(key)?;
        Some(self.unpack(&packed))
    }

    #[expect(
        clippy::expect_used,
        reason = "types with other maps than by string are no objects of Kubernetes"
    )]
    pub(super) fn pack(&self, object: &K) -> Packed {
        let json = serde_json::to_vec(object).expect("an object can be written as JSON");
        let dictionary = self.dictionary.get_or_init(|| json.as_slice().into());
        compress_prepend_size_with_dict(&json, dictionary).into_boxed_slice()
    }

    #[expect(clippy::expect_used, reason = "it was packed here, in this process")]
    fn unpack(&self, packed: &[u8]) -> K {
        let dictionary = self.dictionary.get().map_or(&[][..], |dictionary| dictionary);
        let json = decompress_size_prepended_with_dict(packed, dictionary).expect("what was packed can be unpacked");
        serde_json::from_slice(&json).expect("an object can be read as it was written")
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

    #[test]
    fn what_objects_have_in_common_is_held_once() {
        let objects = Objects::new();
        objects.pack(&node(0));
        let alone = serde_json::to_vec(&node(1)).unwrap().len();
        let packed = objects.pack(&node(1)).len();
        assert!(packed * 8 < alone, "{packed} bytes of {alone}");
    }
}
