//! The deletion brake: one wrong response must not delete most of what there is. Pure.
//!
//! A response that would delete more than half of more than five objects is held. It is confirmed by a later response, at least one sync
//! interval after it, that would delete nothing that the first one did not; or it is released by a person, who names its revision.

use std::collections::BTreeSet;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewaiter_kit::Key;

/// What lets a mass deletion take place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MassDeletion {
    /// The next sync that confirms it, or a person.
    #[default]
    Confirm,
    /// Only a person, who annotates `CloudSync` with the revision.
    Release,
}

/// The memory of the brake: the first response of those that it holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Brake {
    held: Option<Held>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Held {
    keys: BTreeSet<Key>,
    at: Duration,
}

/// A response that would delete most objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct MassDeletionOf<'a> {
    /// What it would delete.
    pub(super) keys: &'a BTreeSet<Key>,
    /// When the cloud said so last.
    pub(super) confirmed: Duration,
    /// Whether a person released exactly this response.
    pub(super) released: bool,
}

impl Brake {
    /// Whether the deletions may take place.
    pub(super) fn lets(&mut self, response: MassDeletionOf<'_>, rule: MassDeletion, interval: Duration) -> bool {
        if response.released {
            return true;
        }
        let known = self.held.as_ref().filter(|held| response.keys.is_subset(&held.keys));
        let Some(held) = known else {
            self.held = Some(Held {
                keys: response.keys.clone(),
                at: response.confirmed,
            });
            return false;
        };
        rule == MassDeletion::Confirm && response.confirmed >= held.at.saturating_add(interval)
    }

    /// Forgets what was held, because a response does not delete most objects.
    pub(super) fn reset(&mut self) {
        self.held = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn lets(brake: &mut Brake, names: &[&str], second: u64, rule: MassDeletion) -> bool {
        let keys = names.iter().map(|name| Key::new(name)).collect();
        let response = MassDeletionOf {
            keys: &keys,
            confirmed: Duration::from_secs(second),
            released: false,
        };
        brake.lets(response, rule, INTERVAL)
    }

    #[test]
    fn a_later_response_confirms() {
        for (names, second, allowed) in [
            (&["a", "b"][..], 29, false),
            (&["a", "b"], 30, true),
            (&["a"], 31, true),
            (&["a", "c"], 31, false),
        ] {
            let mut brake = Brake::default();
            assert!(!lets(&mut brake, &["a", "b"], 0, MassDeletion::Confirm));
            assert_eq!(
                lets(&mut brake, names, second, MassDeletion::Confirm),
                allowed,
                "{names:?} after {second} s"
            );
        }
    }

    #[test]
    fn a_response_that_deletes_more_is_held_anew() {
        let mut brake = Brake::default();
        assert!(!lets(&mut brake, &["a"], 0, MassDeletion::Confirm));
        assert!(!lets(&mut brake, &["a", "b"], 40, MassDeletion::Confirm));
        assert!(!lets(&mut brake, &["a", "b"], 60, MassDeletion::Confirm));
        assert!(lets(&mut brake, &["a", "b"], 70, MassDeletion::Confirm));
        assert!(
            lets(&mut brake, &["b"], 71, MassDeletion::Confirm),
            "the rest, after some deletions failed"
        );
        brake.reset();
        assert!(
            !lets(&mut brake, &["a"], 200, MassDeletion::Confirm),
            "it was forgotten"
        );
    }

    #[test]
    fn with_release_only_a_person_confirms() {
        let mut brake = Brake::default();
        assert!(!lets(&mut brake, &["a"], 0, MassDeletion::Release));
        assert!(!lets(&mut brake, &["a"], 1_000, MassDeletion::Release));
        let keys = [Key::new("a")].into();
        let response = MassDeletionOf {
            keys: &keys,
            confirmed: Duration::from_secs(1_001),
            released: true,
        };
        assert!(brake.lets(response, MassDeletion::Release, INTERVAL));
    }
}
