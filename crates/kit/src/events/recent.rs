//! What was published lately: each thing once, and no object without end.
//!
//! The limits for one object are those of client-go's event correlator: 25 at once, then one in five minutes. Keys are hashes, so
//! that what somebody wrote into an object is not kept.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;

use super::Notice;

const REPEAT_AFTER: Duration = Duration::from_mins(50);
const BURST: u32 = 25;
const REFILL: Duration = Duration::from_mins(5);

/// What has expired is dropped when so many more were added.
const SWEEP: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Recent {
    hasher: RandomState,
    /// By hash of object and words: when it may be published again.
    published: HashMap<u64, Duration>,
    /// By hash of the object: from when on its allowance is full again. Each Event moves it by one refill.
    full_at: HashMap<u64, Duration>,
    sweep_at: usize,
}

/// What was admitted, to be withdrawn if it could not be published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Admitted {
    words: u64,
    object: u64,
}

impl Recent {
    /// Whether to publish at `now`; counted as published when so.
    pub(super) fn admit(&mut self, regarding: &ObjectReference, notice: &Notice, now: Duration) -> Option<Admitted> {
        let object = match regarding.uid.as_deref() {
            Some(uid) => self.hasher.hash_one(uid),
            None => self
                .hasher
                .hash_one((&regarding.kind, &regarding.namespace, &regarding.name)),
        };
        let words = self.hasher.hash_one((object, &notice.reason, &notice.note));
        if self.published.get(&words).is_some_and(|again| now < *again) {
            return None;
        }
        let full_at = self.full_at.get(&object).copied().unwrap_or_default().max(now) + REFILL;
        if full_at > now + REFILL * BURST {
            return None;
        }
        self.sweep(now);
        self.full_at.insert(object, full_at);
        self.published.insert(words, now + REPEAT_AFTER);
        Some(Admitted { words, object })
    }

    /// It could not be published: the next attempt may.
    pub(super) fn withdraw(&mut self, admitted: Admitted) {
        self.published.remove(&admitted.words);
        if let Some(full_at) = self.full_at.get_mut(&admitted.object) {
            *full_at = full_at.saturating_sub(REFILL);
        }
    }

    fn sweep(&mut self, now: Duration) {
        if self.published.len() < self.sweep_at {
            return;
        }
        self.published.retain(|_, again| now < *again);
        self.full_at.retain(|_, full_at| now < *full_at);
        self.sweep_at = self.published.len() + SWEEP;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::NoticeKind;

    const NOW: Duration = Duration::from_secs(10_000);

    fn node(uid: &str) -> ObjectReference {
        ObjectReference {
            uid: Some(uid.to_owned()),
            ..ObjectReference::default()
        }
    }

    fn notice(note: &str) -> Notice {
        Notice {
            kind: NoticeKind::Warning,
            reason: "Refused".into(),
            action: "Label".into(),
            note: note.to_owned(),
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
    fn forgets_what_has_expired() {
        let mut recent = Recent::default();
        for n in 0..5_000 {
            recent.admit(&node(&n.to_string()), &notice("x"), NOW);
        }
        for n in 0..1_001 {
            recent.admit(&node(&n.to_string()), &notice("y"), NOW + 2 * REPEAT_AFTER);
        }
        assert!(recent.published.len() <= 1_001, "{}", recent.published.len());
        assert!(recent.full_at.len() <= 1_001);
    }
}
