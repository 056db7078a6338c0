//! An index of a cache: the keys that have a value, updated with the objects.
//!
//! Only [`Cache::index`](crate::Cache::index) makes one, and the cache updates it before it calls any trigger.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::key::Key;

/// Value → the keys of the objects that have it. Clones share it.
#[derive(Clone, Debug)]
pub struct Index<V>(Arc<Mutex<BTreeSet<(V, Key)>>>);

impl<V: Ord + Clone> Index<V> {
    /// The keys of the objects that have `value`, in order.
    #[must_use]
    pub fn keys(&self, value: &V) -> Vec<Key> {
        let pairs = self.0.lock();
        let from = pairs.range((value.clone(), Key::new(""))..);
        from.take_while(|(other, _)| other == value)
            .map(|(_, key)| key.clone())
            .collect()
    }

    /// Every value that some object has, in order.
    #[must_use]
    pub fn values(&self) -> Vec<V> {
        let mut values: Vec<V> = self.0.lock().iter().map(|(value, _)| value.clone()).collect();
        values.dedup();
        values
    }

    pub(crate) fn update(&self, key: &Key, before: &[V], after: Vec<V>) {
        let mut pairs = self.0.lock();
        for value in before.iter().filter(|value| !after.contains(value)) {
            pairs.remove(&(value.clone(), key.clone()));
        }
        for value in after.into_iter().filter(|value| !before.contains(value)) {
            pairs.insert((value, key.clone()));
        }
    }
}

impl<V> Default for Index<V> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_under_each_of_its_values_and_under_no_other() {
        let index = Index::default();
        let (a, b) = (Key::new("a"), Key::new("b"));
        index.update(&a, &[], vec!["x", "y"]);
        index.update(&b, &[], vec!["x"]);
        assert_eq!(index.keys(&"x"), [a.clone(), b.clone()]);
        index.update(&a, &["x", "y"], vec!["y"]);
        assert_eq!((index.keys(&"x"), index.keys(&"y")), (vec![b.clone()], vec![a.clone()]));
        index.update(&a, &["y"], vec![]);
        index.update(&b, &["x"], vec![]);
        assert!(index.values().is_empty(), "nothing is kept of what is gone");
    }
}
