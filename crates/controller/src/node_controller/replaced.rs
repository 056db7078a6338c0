//! Which versions our own writes have replaced, as far as the cache may still show them.
//!
//! The watches bring back our writes one by one, and each starts a pass: without this the pass after the record's would send
//! the patch of the Node once more, for a 409. It saves writes and decides nothing else: each is conditional all the same,
//! and after [`KEPT`] nothing is held back any more.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A write that the watch has not brought back after this may have been undone by somebody, and never will be seen. Longer than a
/// watch waits before it tries again: until it is back every pass would end in a 409.
const KEPT: Duration = Duration::from_secs(30);

/// The replaced versions of the objects of one kind, by name. `None` is no object at all.
#[derive(Debug, Default)]
pub(super) struct Replaced(Mutex<HashMap<Box<str>, Versions>>);

#[derive(Debug, Default)]
struct Versions {
    old: Vec<Option<Box<str>>>,
    /// Monotonic.
    until: Duration,
}

impl Replaced {
    /// Our write has made `new` of `old` at `now`.
    pub(super) fn note(&self, name: &str, old: Option<&str>, new: Option<&str>, now: Duration) {
        if old == new {
            // It changed nothing, so the watch will bring nothing.
            return;
        }
        let mut all = self.lock();
        let versions = all.entry(name.into()).or_default();
        versions.old.push(old.map(Into::into));
        versions.until = now + KEPT;
    }

    /// Whether this version, which the cache shows, is one that we have replaced.
    pub(super) fn holds(&self, name: &str, shown: Option<&str>, now: Duration) -> bool {
        let mut all = self.lock();
        let Some(versions) = all.get(name) else { return false };
        let holds = now < versions.until && versions.old.iter().any(|old| old.as_deref() == shown);
        if !holds {
            all.remove(name);
        }
        holds
    }

    /// The object is gone.
    pub(super) fn forget(&self, name: &str) {
        self.lock().remove(name);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Box<str>, Versions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    #[test]
    fn a_version_is_held_back_until_the_cache_is_past_it() {
        let replaced = Replaced::default();
        replaced.note("n", None, Some("1"), NOW);
        replaced.note("n", Some("1"), Some("2"), NOW);
        assert!(replaced.holds("n", None, NOW) && replaced.holds("n", Some("1"), NOW));
        assert!(!replaced.holds("m", None, NOW), "another object");
        assert!(!replaced.holds("n", Some("2"), NOW));
        assert!(replaced.lock().is_empty(), "what the cache is past is not kept");
        assert!(
            !replaced.holds("n", None, NOW),
            "it was deleted since, and may be written again"
        );
    }

    #[test]
    fn a_write_that_changed_nothing_holds_back_nothing() {
        let replaced = Replaced::default();
        replaced.note("n", Some("1"), Some("1"), NOW);
        assert!(!replaced.holds("n", Some("1"), NOW));
    }

    #[test]
    fn a_write_that_is_never_seen_holds_back_for_a_while_only() {
        let replaced = Replaced::default();
        replaced.note("n", None, Some("1"), NOW);
        assert!(!replaced.holds("n", None, NOW + KEPT));
        assert!(replaced.lock().is_empty());
    }
}
