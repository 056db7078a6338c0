//! The versions that our own writes have replaced, as long as a cache may still show them.
//!
//! The watches bring back our writes one by one, and each starts a pass: without this memory the pass after the first
//! of two writes would send the second one again, for a 409. It saves writes and decides nothing else: each write is
//! conditional all the same, and nothing is held back for longer than [`EXPIRY`].
//!
//! What a cache is past is forgotten when the cache changes ([`Unseen::shown`]): an object that we created and somebody
//! deleted is absent again, and may be created at once. If the watch shows both before the response comes, it is
//! awaited until [`EXPIRY`], because a cache that is behind shows the same.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::key::Key;

/// A write that the watch has not brought back after this time may have been undone by somebody and is never seen.
/// Longer than a watch waits before it reconnects: until then every pass would end in a 409.
const EXPIRY: Duration = Duration::from_secs(30);

/// The versions of one object that are remembered. A cache that is further behind costs a 409.
const MAX_VERSIONS: usize = 16;

/// Expired entries are removed when as many were added as were left the last time, and at least this many: objects that
/// are gone are never looked up again, and a sweep looks at all entries.
const MIN_SWEEP: usize = 1_000;

/// The replaced versions by resource and key. `None` is the object's absence.
#[derive(Debug, Default)]
pub(super) struct Unseen(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    versions: BTreeMap<(Box<str>, Key), Versions>,
    sweep_at: usize,
}

#[derive(Debug, Default)]
struct Versions {
    old: Vec<Option<Box<str>>>,
    /// Monotonic.
    until: Duration,
}

impl Unseen {
    /// Our write has replaced the version `old` by `new` at `now`.
    pub(super) fn note(&self, resource: &str, key: &Key, old: Option<&str>, new: Option<&str>, now: Duration) {
        if old == new {
            // It changed nothing, so the watch brings nothing.
            return;
        }
        let mut state = self.0.lock();
        if state.versions.len() >= state.sweep_at {
            state.versions.retain(|_, versions| now < versions.until);
            let left = state.versions.len();
            state.sweep_at = left + left.max(MIN_SWEEP);
        }
        let versions = state.versions.entry((resource.into(), key.clone())).or_default();
        if now >= versions.until {
            versions.old.clear();
        }
        // An object that we created and deleted is absent again.
        versions.old.retain(|known| known.as_deref() != new);
        if !versions.has(old) {
            versions.old.push(old.map(Into::into));
        }
        let surplus = versions.old.len().saturating_sub(MAX_VERSIONS);
        versions.old.drain(..surplus);
        versions.until = now + EXPIRY;
    }

    /// The cache shows this version of the object. If we have not replaced it, all that we have replaced are in the
    /// past.
    pub(super) fn shown(&self, resource: &str, key: &Key, shown: Option<&str>) {
        let mut state = self.0.lock();
        if state.versions.is_empty() {
            return;
        }
        let place = (resource.into(), key.clone());
        if state.versions.get(&place).is_some_and(|versions| !versions.has(shown)) {
            state.versions.remove(&place);
        }
    }

    /// True if this version, which the cache shows, is one that we have replaced.
    pub(super) fn holds(&self, resource: &str, key: &Key, shown: Option<&str>, now: Duration) -> bool {
        let state = self.0.lock();
        if state.versions.is_empty() {
            return false;
        }
        let versions = state.versions.get(&(resource.into(), key.clone()));
        versions.is_some_and(|versions| now < versions.until && versions.has(shown))
    }
}

impl Versions {
    fn has(&self, shown: Option<&str>) -> bool {
        self.old.iter().any(|old| old.as_deref() == shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);

    fn key() -> Key {
        Key::new("n")
    }

    #[test]
    fn an_object_that_was_created_and_deleted_is_awaited_no_longer_than_the_cache_shows_it() {
        let unseen = Unseen::default();
        unseen.note("nodes", &key(), None, Some("1"), NOW);
        unseen.note("nodes", &key(), Some("1"), None, NOW);
        assert!(unseen.holds("nodes", &key(), Some("1"), NOW));
        assert!(!unseen.holds("nodes", &key(), None, NOW));
    }

    #[test]
    fn a_version_is_held_back_until_the_cache_is_past_it() {
        let unseen = Unseen::default();
        unseen.note("nodes", &key(), None, Some("1"), NOW);
        unseen.note("nodes", &key(), Some("1"), Some("2"), NOW);
        let holds = |shown| unseen.holds("nodes", &key(), shown, NOW);
        assert!(holds(None) && holds(Some("1")));
        assert!(!unseen.holds("nodes", &Key::new("m"), None, NOW), "another object");
        assert!(!unseen.holds("pods", &key(), None, NOW), "another kind");
        assert!(!holds(Some("2")));
        assert!(holds(None) && holds(Some("1")), "to ask changes nothing");
        unseen.shown("nodes", &key(), Some("1"));
        assert!(holds(None) && holds(Some("1")), "the cache is behind");
        unseen.shown("nodes", &key(), Some("2"));
        assert!(
            unseen.0.lock().versions.is_empty(),
            "nothing is kept of what the cache is past"
        );
        assert!(!holds(None), "it was deleted since, and may be written again");
    }

    #[test]
    fn a_write_that_changed_nothing_holds_back_nothing() {
        let unseen = Unseen::default();
        unseen.note("nodes", &key(), Some("1"), Some("1"), NOW);
        assert!(!unseen.holds("nodes", &key(), Some("1"), NOW));
    }

    #[test]
    fn a_write_that_is_never_seen_holds_back_for_a_while_only() {
        let unseen = Unseen::default();
        unseen.note("nodes", &key(), None, Some("1"), NOW);
        assert!(!unseen.holds("nodes", &key(), None, NOW + EXPIRY));
    }

    #[test]
    fn an_object_that_nobody_asks_about_takes_no_more_room() {
        let unseen = Unseen::default();
        for number in 0..10_000_u32 {
            let (old, new) = (number.to_string(), (number + 1).to_string());
            unseen.note("clusterhealths", &key(), Some(&old), Some(&new), NOW);
        }
        assert_eq!(
            unseen.0.lock().versions.values().map(|it| it.old.len()).sum::<usize>(),
            MAX_VERSIONS
        );
        assert!(unseen.holds("clusterhealths", &key(), Some("9999"), NOW), "the newest");
    }

    #[test]
    fn objects_that_are_gone_are_not_kept() {
        let unseen = Unseen::default();
        for number in 0..10_000_u32 {
            let at = NOW + Duration::from_secs(number.into());
            unseen.note("nodes", &Key::new(&number.to_string()), None, Some("1"), at);
        }
        assert!(
            unseen.0.lock().versions.len() <= MIN_SWEEP + 31,
            "{}",
            unseen.0.lock().versions.len()
        );
    }
    /// Or a cold start would take a time that grows with the square of the number of Nodes.
    #[test]
    fn the_more_there_are_the_less_often_all_are_looked_at() {
        let unseen = Unseen::default();
        let mut sweeps = std::collections::BTreeSet::new();
        for number in 0..64_000_u32 {
            unseen.note("nodes", &Key::new(&number.to_string()), None, Some("1"), NOW);
            sweeps.insert(unseen.0.lock().sweep_at);
        }
        assert!(sweeps.len() <= 7, "{sweeps:?}");
    }
}
