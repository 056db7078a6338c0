//! The notices that were published lately: each once, and a limited number for an object.
//!
//! The limits for one object are those of client-go's event correlator: 25 at once, then one in five minutes. Keys are
//! hashes, so that what somebody wrote into an object is not kept. The memory is bounded, however many objects there
//! are and whatever becomes of their Events: what is forgotten too early is at worst published again.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::mem;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;

use super::Notice;
use crate::allowance::Allowance;

const REPEAT_AFTER: Duration = Duration::from_mins(50);
const REFILL: Duration = Duration::from_mins(5);
const OBJECT_RATE: Allowance = Allowance {
    burst: 25,
    refill: REFILL,
};

/// The minimum number of notices of each kind that are remembered: two notices on each of 50,000 Nodes. With fewer,
/// each retry of a Node beyond them would publish again.
const MIN_REMEMBERED: usize = 100_000;
/// The time after which a remembered notice has no effect any more.
const FORGET_AFTER: Duration = OBJECT_RATE.refill.saturating_mul(OBJECT_RATE.burst);

#[derive(Debug, Default)]
pub(super) struct Recent {
    hasher: RandomState,
    /// By hash of object and words: when it may be published again.
    published: Newest,
    /// By hash of the object: from when on its allowance is full again. Each Event moves it by one refill.
    full_at: Newest,
}

/// A notice that was admitted, to be withdrawn if it could not be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    words: u64,
    object: u64,
    at: Duration,
}

impl Recent {
    /// True if it is to be published at `now`; then it counts as published.
    pub(super) fn admit(&mut self, regarding: &ObjectReference, notice: &Notice, now: Duration) -> Option<Admitted> {
        let object = match regarding.uid.as_deref() {
            Some(uid) => self.hasher.hash_one(uid),
            None => self
                .hasher
                .hash_one((&regarding.kind, &regarding.namespace, &regarding.name)),
        };
        let words = self.hasher.hash_one((object, &notice.reason, &notice.note));
        if self.published.get(words).is_some_and(|again| now < again) {
            return None;
        }
        let full_at = OBJECT_RATE.take(self.full_at.get(object), now).ok()?;
        self.full_at.insert(object, full_at, now);
        self.published.insert(words, now + REPEAT_AFTER, now);
        Some(Admitted { words, object, at: now })
    }

    /// It could not be published: the next attempt may.
    pub(super) fn withdraw(&mut self, Admitted { words, object, at }: Admitted) {
        self.published.remove(words);
        let full_at = self.full_at.get(object).map(|full_at| full_at.saturating_sub(REFILL));
        match full_at {
            Some(full_at) if full_at > at => self.full_at.insert(object, full_at, at),
            _ => self.full_at.remove(object),
        }
    }
}

/// The newest entries of a map: at least [`MIN_REMEMBERED`], at most twice as many. None is older than twice
/// [`FORGET_AFTER`] when another is added.
#[derive(Debug, Default)]
struct Newest {
    new: HashMap<u64, Duration>,
    old: HashMap<u64, Duration>,
    /// When the first of `new` was added.
    since: Duration,
}

impl Newest {
    fn get(&self, key: u64) -> Option<Duration> {
        self.new.get(&key).or_else(|| self.old.get(&key)).copied()
    }

    fn insert(&mut self, key: u64, time: Duration, now: Duration) {
        let full = self.new.len() >= MIN_REMEMBERED && !self.new.contains_key(&key);
        if full || now.saturating_sub(self.since) >= FORGET_AFTER {
            self.old = mem::take(&mut self.new);
            self.since = now;
        }
        self.old.remove(&key);
        self.new.insert(key, time);
    }

    fn remove(&mut self, key: u64) {
        self.new.remove(&key);
        self.old.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(10_000);

    fn node(uid: &str) -> ObjectReference {
        ObjectReference {
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }
    }

    fn notice(note: &str) -> Notice {
        Notice::warning("Refused", "Label", note)
    }

    impl Newest {
        fn len(&self) -> usize {
            self.new.len() + self.old.len()
        }
    }

    #[test]
    fn the_same_words_once_in_fifty_minutes() {
        let mut recent = Recent::default();
        assert!(recent.admit(&node("a"), &notice("x"), NOW).is_some());
        assert!(recent.admit(&node("a"), &notice("x"), NOW + REPEAT_AFTER / 2).is_none());
        assert!(recent.admit(&node("a"), &notice("x"), NOW + REPEAT_AFTER).is_some());
    }

    #[test]
    fn other_words_and_other_objects_are_other() {
        let mut recent = Recent::default();
        assert!(recent.admit(&node("a"), &notice("x"), NOW).is_some());
        assert!(recent.admit(&node("a"), &notice("y"), NOW).is_some());
        assert!(recent.admit(&node("b"), &notice("x"), NOW).is_some());
    }

    #[test]
    fn an_object_that_changes_without_end_gets_its_share() {
        let mut recent = Recent::default();
        let mut admitted = |at: Duration, from: u32| {
            (from..from + 100)
                .filter(|n| recent.admit(&node("a"), &notice(&n.to_string()), at).is_some())
                .count()
        };
        assert_eq!(admitted(NOW, 0), 25);
        assert_eq!(admitted(NOW + REFILL, 100), 1);
        assert_eq!(admitted(NOW + 100 * REFILL, 200), 25);
    }

    #[test]
    fn what_was_withdrawn_may_be_published() {
        let mut recent = Recent::default();
        let admitted = recent.admit(&node("a"), &notice("x"), NOW).unwrap();
        recent.withdraw(admitted);
        assert!(recent.admit(&node("a"), &notice("x"), NOW).is_some());
    }

    #[test]
    fn remembers_nothing_of_what_could_not_be_published() {
        let mut recent = Recent::default();
        for n in 0..100_000 {
            let admitted = recent.admit(&node(&n.to_string()), &notice("x"), NOW).unwrap();
            recent.withdraw(admitted);
        }
        assert_eq!((recent.published.len(), recent.full_at.len()), (0, 0));
    }

    #[test]
    fn a_withdrawal_gives_back_one_of_the_share() {
        let mut recent = Recent::default();
        for n in 0..24 {
            assert!(recent.admit(&node("a"), &notice(&n.to_string()), NOW).is_some());
        }
        let last = recent.admit(&node("a"), &notice("x"), NOW).unwrap();
        assert!(recent.admit(&node("a"), &notice("y"), NOW).is_none());
        recent.withdraw(last);
        assert!(recent.admit(&node("a"), &notice("y"), NOW).is_some());
        assert!(recent.admit(&node("a"), &notice("z"), NOW).is_none());
    }

    #[test]
    fn remembers_the_newest_and_not_without_end() {
        let mut recent = Recent::default();
        let (all, mut most) = (3 * MIN_REMEMBERED, 0);
        for n in 0..all {
            assert!(recent.admit(&node(&n.to_string()), &notice("x"), NOW).is_some());
            most = most.max(recent.published.len()).max(recent.full_at.len());
        }
        assert!((MIN_REMEMBERED..=2 * MIN_REMEMBERED).contains(&most), "{most}");
        for n in all - MIN_REMEMBERED..all {
            assert!(recent.admit(&node(&n.to_string()), &notice("x"), NOW).is_none(), "{n}");
        }
    }

    /// A refused Node is tried again every few minutes.
    #[test]
    fn what_is_wrong_with_fifty_thousand_nodes_is_told_once_for_each() {
        let mut recent = Recent::default();
        for retry in 0..3 {
            let at = NOW + REFILL * retry;
            let nodes = (0..50_000).map(|n| node(&n.to_string()));
            let admitted = nodes.filter(|node| recent.admit(node, &notice("x"), at).is_some());
            assert_eq!(admitted.count(), if retry == 0 { 50_000 } else { 0 });
        }
    }

    #[test]
    fn what_has_no_effect_any_more_is_forgotten() {
        let mut recent = Recent::default();
        for n in 0..1_000 {
            assert!(recent.admit(&node(&n.to_string()), &notice("x"), NOW).is_some());
        }
        for periods in 1..=2 {
            let at = NOW + FORGET_AFTER * periods;
            assert!(recent.admit(&node("later"), &notice("x"), at).is_some());
        }
        assert_eq!((recent.published.len(), recent.full_at.len()), (1, 1));
    }
}
