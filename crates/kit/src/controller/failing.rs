//! The keys whose last pass failed, by the class of the error.
//!
//! Most often they fail for one reason: a permission, a definition or an API server that is missing. Each waits for its own backoff; the
//! first of them that succeeds shows that the reason is gone, and lets the others of its class try at once.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::key::Key;

/// Between two releases. An object that fails and succeeds in turn must not drive the others.
const REST: Duration = Duration::from_secs(5);

#[derive(Debug, Default)]
pub(super) struct Failing {
    classes: BTreeMap<Key, &'static str>,
    /// How many have each class.
    counts: BTreeMap<&'static str, usize>,
    /// The monotonic time before which nothing is released.
    not_before: Duration,
}

impl Failing {
    /// Returns how many fail with this class now.
    pub(super) fn failed(&mut self, key: &Key, class: &'static str) -> usize {
        let before = self.classes.insert(key.clone(), class);
        let count = self.counts.entry(class).or_default();
        if before != Some(class) {
            *count += 1;
        }
        let count = *count;
        self.forget(before.filter(|before| *before != class));
        count
    }

    /// The key needs no further attempt. Returns the others that failed as it did.
    pub(super) fn succeeded(&mut self, key: &Key, now: Duration) -> BTreeSet<Key> {
        let Some(class) = self.classes.remove(key) else {
            return BTreeSet::new();
        };
        self.forget(Some(class));
        if now < self.not_before {
            return BTreeSet::new();
        }
        let alike = self.classes.iter().filter(|(_, other)| **other == class);
        let alike: BTreeSet<Key> = alike.map(|(key, _)| key.clone()).collect();
        if !alike.is_empty() {
            self.not_before = now.saturating_add(REST);
        }
        alike
    }

    fn forget(&mut self, class: Option<&'static str>) {
        if let Some(count) = class.and_then(|class| self.counts.get_mut(class)) {
            *count = count.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_success_releases_those_of_its_class_and_not_too_often() {
        let mut failing = Failing::default();
        let second = Duration::from_secs;
        assert_eq!(failing.failed(&Key::new("a"), "rejected"), 1);
        let names = |keys: BTreeSet<Key>| -> Vec<String> { keys.iter().map(ToString::to_string).collect() };
        for (name, class, count) in [
            ("a", "denied", 1),
            ("b", "denied", 2),
            ("b", "denied", 2),
            ("c", "rejected", 1),
        ] {
            assert_eq!(failing.failed(&Key::new(name), class), count);
        }
        assert_eq!(names(failing.succeeded(&Key::new("well"), second(10))), [""; 0]);
        assert_eq!(names(failing.succeeded(&Key::new("a"), second(10))), ["b"]);
        for (at, released) in [(11, &[][..]), (15, &["b"])] {
            failing.failed(&Key::new("a"), "denied");
            assert_eq!(
                names(failing.succeeded(&Key::new("a"), second(at))),
                released,
                "after {at} s"
            );
        }
    }
}
