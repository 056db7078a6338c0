//! The brake: one wrong response must neither delete most of what there is, nor give many people new permissions. Pure.
//!
//! It counts the objects that the cloud listed before and, at the start of the process, those that the cluster has. An object that appears
//! in the cluster later and that the cloud does not list is somebody's: it is neither counted nor protected.
//!
//! A response that would delete more than half of more than five objects (of roles, more than one: many bindings may hang on one) is held, and so is, of a kind with a bound, one that adds more
//! than the bound within one sync interval. It is confirmed by a later response, at least one sync interval after it, that would do
//! nothing that the first one did not; or it is released by a person, who names its revision.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewaiter_kit::Key;

/// What lets a mass deletion take place, and many additions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MassDeletion {
    /// The next sync that confirms it, or a person.
    #[default]
    Confirm,
    /// Only a person, who annotates `CloudSync` with the revision.
    Release,
}

/// The memory of the brake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Brake {
    deletions: Holding<Key>,
    additions: Holding<(Key, String)>,
    /// The objects that it protects; None before the first response.
    protected: Option<BTreeSet<Key>>,
    /// What each object gave that the cloud listed before; None before the first response, and without a bound.
    given: Option<BTreeMap<Key, String>>,
    /// When objects were added that were not held, once for each.
    added: Vec<Duration>,
}

/// What is held of one sort: the first response of those that say the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holding<T>(Option<(BTreeSet<T>, Duration)>);

/// What decides about a response that would change many objects.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    /// When the cloud said so last.
    pub(super) confirmed: Duration,
    /// Whether a person released exactly this response.
    pub(super) released: bool,
    /// What lets it pass.
    pub(super) rule: MassDeletion,
    /// The sync interval.
    pub(super) interval: Duration,
}

/// The additions that are held.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Additions {
    /// The objects that the cloud did not list before.
    pub(super) new: BTreeSet<Key>,
    /// Those that would give something else than before.
    pub(super) changed: BTreeSet<Key>,
}

impl Additions {
    pub(super) fn is_empty(&self) -> bool {
        self.new.is_empty() && self.changed.is_empty()
    }

    pub(super) fn contain(&self, key: &Key) -> bool {
        self.new.contains(key) || self.changed.contains(key)
    }
}

/// So many objects may be deleted together, of a kind that nothing else hangs on.
pub(super) const FEW: usize = 5;

/// Whether `deleted` of `protected` objects are more than half of more than `few`.
pub(super) fn deletes_most(deleted: usize, protected: usize, few: usize) -> bool {
    protected > few && deleted * 2 > protected
}

impl Brake {
    /// The objects that it protects: at the first response of the process those that the cluster has.
    pub(super) fn protected(&self, cluster: impl FnOnce() -> BTreeSet<Key>) -> BTreeSet<Key> {
        self.protected.clone().unwrap_or_else(cluster)
    }

    /// From now on it protects these, and remembers of no others what they gave.
    pub(super) fn protect(&mut self, objects: BTreeSet<Key>) {
        if let Some(given) = &mut self.given {
            given.retain(|key, _| objects.contains(key));
        }
        self.protected = Some(objects);
    }

    /// Whether the deletions of most objects may take place.
    pub(super) fn lets_delete(&mut self, keys: &BTreeSet<Key>, response: Response) -> bool {
        self.deletions.lets(keys, response)
    }

    /// Forgets which deletions were held, because a response does not delete most objects.
    pub(super) fn deletes_few(&mut self) {
        self.deletions = Holding::default();
    }

    /// The additions of a response that are held because there are more than `bound` of them within one sync interval. `listed` is what
    /// each object gives. The first response of the process is compared with the objects that the cluster has; into an empty cluster,
    /// everything may be added.
    pub(super) fn held_additions(
        &mut self,
        listed: BTreeMap<Key, String>,
        cluster: impl FnOnce() -> BTreeSet<Key>,
        bound: usize,
        response: Response,
    ) -> Additions {
        let mut given = self.given.take().unwrap_or_else(|| {
            let present = cluster();
            let known = listed
                .iter()
                .filter(|(key, _)| present.is_empty() || present.contains(*key));
            known.map(|(key, gives)| (key.clone(), gives.clone())).collect()
        });
        let added: BTreeSet<(Key, String)> = listed
            .into_iter()
            .filter(|(key, gives)| given.get(key) != Some(gives))
            .collect();
        let recent = |at: &Duration| at.saturating_add(response.interval) > response.confirmed;
        self.added.retain(recent);
        let mut held = Additions::default();
        if self.added.len() + added.len() <= bound {
            self.additions = Holding::default();
            self.added.extend(added.iter().map(|_| response.confirmed));
            given.extend(added);
        } else if self.additions.lets(&added, response) {
            given.extend(added);
        } else {
            let keys = added.into_iter().map(|(key, _)| key);
            (held.changed, held.new) = keys.partition(|key| given.contains_key(key));
        }
        self.given = Some(given);
        held
    }
}

impl<T> Default for Holding<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: Ord + Clone> Holding<T> {
    /// Whether the response may change these.
    fn lets(&mut self, items: &BTreeSet<T>, response: Response) -> bool {
        if response.released {
            return true;
        }
        let known = self.0.as_ref().filter(|(held, _)| items.is_subset(held));
        let Some((_, since)) = known else {
            self.0 = Some((items.clone(), response.confirmed));
            return false;
        };
        response.rule == MassDeletion::Confirm && response.confirmed >= since.saturating_add(response.interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn response(second: u64, rule: MassDeletion) -> Response {
        Response {
            confirmed: Duration::from_secs(second),
            released: false,
            rule,
            interval: INTERVAL,
        }
    }

    fn lets(brake: &mut Brake, names: &[&str], second: u64, rule: MassDeletion) -> bool {
        let keys = names.iter().map(|name| Key::new(name)).collect();
        brake.lets_delete(&keys, response(second, rule))
    }

    #[test]
    fn more_than_half_of_more_than_five_are_most() {
        for (deleted, protected, few, most) in [
            (5, 5, FEW, false),
            (6, 6, FEW, true),
            (3, 6, FEW, false),
            (4, 6, FEW, true),
            (51, 100, FEW, true),
            (1, 1, 1, false),
            (1, 2, 1, false),
            (2, 2, 1, true),
        ] {
            assert_eq!(
                deletes_most(deleted, protected, few),
                most,
                "{deleted} of {protected}, {few}"
            );
        }
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
        brake.deletes_few();
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
        let released = Response {
            released: true,
            ..response(1_001, MassDeletion::Release)
        };
        assert!(brake.lets_delete(&keys, released));
    }

    /// What the cloud lists at a second: a letter for each object, in upper case when it gives something else.
    type Listed = (u64, &'static str);

    /// After each response, what is held: the new ones, and those that changed.
    fn held_of(cluster: &str, responses: &[Listed], rule: MassDeletion) -> Vec<String> {
        let mut brake = Brake::default();
        let key = |letter: char| Key::new(&letter.to_ascii_lowercase().to_string());
        let words = |keys: &BTreeSet<Key>| keys.iter().map(Key::name).collect::<String>();
        let holds = responses.iter().map(|(second, letters)| {
            let listed: BTreeMap<Key, String> = letters
                .chars()
                .map(|letter| (key(letter), letter.to_string()))
                .collect();
            let present = || cluster.chars().map(key).collect();
            let stays: BTreeSet<Key> = listed.keys().cloned().collect();
            let held = brake.held_additions(listed, present, 3, response(*second, rule));
            brake.protect(stays.difference(&held.new).cloned().collect());
            format!("{}/{}", words(&held.new), words(&held.changed))
        });
        holds.collect()
    }

    #[test]
    fn more_additions_than_the_bound_are_held_until_they_are_confirmed() {
        for (cluster, responses, expected) in [
            // The first response: into an empty cluster, and after a restart.
            ("", &[(0, "abcdef")][..], &["/"][..]),
            ("ab", &[(0, "abcde")], &["/"]),
            ("ab", &[(0, "abcdef")], &["cdef/"]),
            // What an edit in the cluster changed is put right: the first response is not compared with what objects give there.
            ("abcdef", &[(0, "ABCDEF")], &["/"]),
            // Up to the bound, and beyond it.
            ("a", &[(0, "a"), (1, "abcd")], &["/", "/"]),
            ("a", &[(0, "a"), (1, "abcde")], &["/", "bcde/"]),
            ("abcd", &[(0, "abcd"), (1, "ABCd")], &["/", "/"]),
            ("abcd", &[(0, "abcd"), (1, "ABCDe")], &["/", "e/abcd"]),
            // Within one interval, however many responses there are.
            ("a", &[(0, "a"), (1, "abcd"), (30, "abcde")], &["/", "/", "e/"]),
            ("a", &[(0, "a"), (1, "abcd"), (31, "abcde")], &["/", "/", "/"]),
            // Confirmed one interval later, unless there are more.
            ("a", &[(0, "a"), (1, "abcde"), (30, "abcde")], &["/", "bcde/", "bcde/"]),
            (
                "a",
                &[(0, "a"), (1, "abcde"), (31, "abcde"), (32, "abcdefg")],
                &["/", "bcde/", "/", "/"],
            ),
            (
                "a",
                &[(0, "a"), (1, "abcde"), (31, "abcdef")],
                &["/", "bcde/", "bcdef/"],
            ),
            // Another list in between ends it.
            (
                "a",
                &[(0, "a"), (1, "abcde"), (2, "a"), (31, "abcde")],
                &["/", "bcde/", "/", "bcde/"],
            ),
        ] {
            let found = held_of(cluster, responses, MassDeletion::Confirm);
            assert_eq!(found, expected, "{responses:?} into {cluster:?}");
        }
    }

    #[test]
    fn with_release_only_a_person_lets_additions_pass() {
        let responses = [(0, "a"), (1, "abcde"), (1_000, "abcde")];
        let found = held_of("a", &responses, MassDeletion::Release);
        assert_eq!(found, ["/", "bcde/", "bcde/"]);
        let mut brake = Brake::default();
        let listed = || ["a", "b"].map(|name| (Key::new(name), String::new())).into();
        let released = Response {
            released: true,
            ..response(2, MassDeletion::Release)
        };
        let cluster = || [Key::new("z")].into();
        let held = brake.held_additions(listed(), cluster, 1, response(1, MassDeletion::Release));
        assert_eq!(held.new.len(), 2);
        assert_eq!(
            brake.held_additions(listed(), cluster, 1, released),
            Additions::default()
        );
        // It was used, and they are not new any more.
        let again = brake.held_additions(listed(), cluster, 1, response(3, MassDeletion::Release));
        assert_eq!(again, Additions::default());
    }
}
