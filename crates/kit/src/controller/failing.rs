//! The keys whose last pass failed, by the class of the error.
//!
//! Most often they fail for one reason: a permission, a definition or an API server that is missing. Each waits for its
//! own backoff; the first of them that succeeds shows that the reason is gone, and the others of its class are requeued
//! at once.
//!
//! Changes do not drive a key that fails: a change starts a pass at once, and if that fails, too, the next pass starts
//! [`REPEATED_FAILURE_DELAY`] later at the earliest. The writes of a pass that partly failed are such changes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::key::Key;

/// The minimum time between two releases. An object that fails and succeeds in turn must not drive the others.
const MIN_RELEASE_INTERVAL: Duration = Duration::from_secs(5);

/// The time between two passes over a key after two failures within this time.
const REPEATED_FAILURE_DELAY: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Failing {
    classes: BTreeMap<Key, Failure>,
    /// The number of keys of each class.
    counts: BTreeMap<&'static str, usize>,
    /// The monotonic time before which nothing is released.
    not_before: Duration,
}

/// The last failure of a key. Monotonic times.
#[derive(Debug)]
struct Failure {
    class: &'static str,
    at: Duration,
    /// No pass starts before this time.
    not_before: Duration,
}

impl Failing {
    /// Records a failure. Returns the number of keys that fail with this class now.
    pub(super) fn failed(&mut self, key: &Key, class: &'static str, now: Duration) -> usize {
        let last = self.classes.get(key);
        let is_soon = last.is_some_and(|last| now < last.at.saturating_add(REPEATED_FAILURE_DELAY));
        let failure = Failure {
            class,
            at: now,
            not_before: if is_soon {
                now.saturating_add(REPEATED_FAILURE_DELAY)
            } else {
                now
            },
        };
        let before = self.classes.insert(key.clone(), failure).map(|before| before.class);
        let count = self.counts.entry(class).or_default();
        if before != Some(class) {
            *count += 1;
        }
        let count = *count;
        self.forget(before.filter(|before| *before != class));
        count
    }

    /// The time for which no pass over the key starts, for whatever reason it is queued.
    pub(super) fn pause(&self, key: &Key, now: Duration) -> Option<Duration> {
        let pause = self.classes.get(key)?.not_before.saturating_sub(now);
        (!pause.is_zero()).then_some(pause)
    }

    /// The key needs no further attempt. Returns the others that failed as it did.
    pub(super) fn succeeded(&mut self, key: &Key, now: Duration) -> BTreeSet<Key> {
        let Some(Failure { class, .. }) = self.classes.remove(key) else {
            return BTreeSet::new();
        };
        self.forget(Some(class));
        if now < self.not_before {
            return BTreeSet::new();
        }
        let alike = self.classes.iter().filter(|(_, other)| other.class == class);
        let alike: BTreeSet<Key> = alike.map(|(key, _)| key.clone()).collect();
        if !alike.is_empty() {
            self.not_before = now.saturating_add(MIN_RELEASE_INTERVAL);
        }
        alike
    }

    /// The key is refused as designed: it does not fail any more, and nothing is shown about the others.
    pub(super) fn refused(&mut self, key: &Key) {
        let before = self.classes.remove(key);
        self.forget(before.map(|before| before.class));
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
        assert_eq!(failing.failed(&Key::new("a"), "rejected", second(1)), 1);
        let names = |keys: BTreeSet<Key>| -> Vec<String> { keys.iter().map(ToString::to_string).collect() };
        for (name, class, count) in [
            ("a", "denied", 1),
            ("b", "denied", 2),
            ("b", "denied", 2),
            ("c", "rejected", 1),
        ] {
            assert_eq!(failing.failed(&Key::new(name), class, second(1)), count);
        }
        assert_eq!(failing.failed(&Key::new("d"), "denied", second(1)), 3);
        failing.refused(&Key::new("d"));
        assert_eq!(
            failing.failed(&Key::new("b"), "denied", second(1)),
            2,
            "one that is refused does not fail"
        );
        assert_eq!(names(failing.succeeded(&Key::new("well"), second(10))), [""; 0]);
        assert_eq!(names(failing.succeeded(&Key::new("a"), second(10))), ["b"]);
        for (at, released) in [(11, &[][..]), (15, &["b"])] {
            failing.failed(&Key::new("a"), "denied", second(at));
            assert_eq!(
                names(failing.succeeded(&Key::new("a"), second(at))),
                released,
                "after {at} s"
            );
        }
    }
    #[test]
    fn a_key_that_fails_twice_in_a_row_pauses() {
        let (mut failing, key) = (Failing::default(), Key::new("a"));
        let millis = Duration::from_millis;
        for (failed, pause) in [
            (0, None),
            (100, Some(1_000)),
            (1_100, None),
            (2_000, Some(1_000)),
            (60_000, None),
        ] {
            failing.failed(&key, "denied", millis(failed));
            assert_eq!(
                failing.pause(&key, millis(failed)),
                pause.map(millis),
                "after {failed} ms"
            );
        }
        failing.failed(&key, "denied", millis(60_001));
        assert_eq!(failing.pause(&key, millis(60_401)), Some(millis(600)));
        failing.succeeded(&key, millis(60_500));
        assert_eq!(failing.pause(&key, millis(60_500)), None);
    }
}
