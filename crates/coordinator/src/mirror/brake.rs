//! The brake: a wrong response must neither delete what the cloud has, nor give many people new permissions. Pure.
//!
//! It counts the objects that the cloud listed before: at the start of the process those of the stored list and, without one, those of the
//! cluster whose name is one of the cloud. Another object of the cluster is neither counted nor protected.
//!
//! | a list that, with those of the last ten sync intervals, | is held until |
//! | --- | --- |
//! | deletes the last objects of a kind or of a scope | the cloud's record of deletions names them |
//! | deletes more than half of at most `few` objects | the record names them, or the rule lets it pass |
//! | deletes more than half of more objects | the rule lets it pass |
//! | adds, within one sync interval, more than the bound of a kind that has one | the rule lets it pass |
//!
//! A person can always release a list, by its revision. The rule is [`MassDeletion`]. With `Confirm`, a later response confirms a list: at
//! least one sync interval after it, and with no deletion or addition that the first one did not have. Of kinds that only a person
//! releases, deletions have the rule `Release`. While deletions are held, the list adds nothing, and the window in which deletions are
//! counted does not slide.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidewaiter_kit::Key;

use super::window::{Extent, Scoped, Window};

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
    window: Window,
    /// Whether the last list deletes something that is held.
    holds_deletions: bool,
    /// What each object gave that the cloud listed before; None before the first response, and without a bound.
    given: Option<BTreeMap<Key, String>>,
    /// When objects were added that were not held, once for each.
    added: Vec<Duration>,
}

/// The first of the consecutive responses with the same held items, and its time.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Holding<T>(Option<(BTreeSet<T>, Duration)>);

/// A response that would delete or add objects, and the rule for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    /// When the cloud last sent it.
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

/// Why deletions are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooMany {
    /// Nothing would be left of the kind or of a scope.
    Emptied,
    /// Less than half would be left.
    Most,
}

/// The largest number of objects of which more than half may be deleted if the cloud's record names them, unless others depend on them.
pub(super) const FEW: usize = 5;

/// Deletions are counted for this many sync intervals: the lists that follow a deletion soon would otherwise delete everything step by step.
const COUNTED_INTERVALS: u32 = 10;

impl Brake {
    /// The objects that it protects: at the first response of the process those that were listed `before`.
    pub(super) fn protected(&mut self, before: impl FnOnce() -> Scoped) -> &Scoped {
        self.window.protected(before)
    }

    /// What each object gave that the cloud listed before this process, if that is known.
    pub(super) fn remember(&mut self, given: impl FnOnce() -> BTreeMap<Key, String>) {
        self.given.get_or_insert_with(given);
    }

    /// A list that cannot be read completely confirms no deletion.
    pub(super) fn confirms_nothing(&mut self) {
        self.deletions = Holding::default();
    }

    /// Why a response that would delete `deletions` is held, if it is. `is_listed` contains what stays, and `is_recorded` what the cloud's
    /// record of deletions names.
    pub(super) fn why_held(
        &mut self,
        deletions: &BTreeSet<Key>,
        few: usize,
        response: Response,
        is_listed: impl Fn(&Key) -> bool,
        is_recorded: impl Fn(&Key) -> bool,
    ) -> Option<TooMany> {
        if !self.holds_deletions {
            self.window
                .slide(response.confirmed, response.interval.saturating_mul(COUNTED_INTERVALS));
        }
        let Extent { emptied, most_of } = self.window.extent(is_listed);
        if deletions.is_empty() || (emptied.is_empty() && most_of.is_none()) {
            self.deletions = Holding::default();
            return None;
        }
        let is_let = self.deletions.lets(deletions, response);
        let may_empty = response.released || emptied.iter().all(&is_recorded);
        let may_delete_most = match most_of {
            None => true,
            Some(count) if count > few => is_let,
            Some(_) => is_let || deletions.iter().all(&is_recorded),
        };
        match (may_empty, may_delete_most) {
            (false, _) => Some(TooMany::Emptied),
            (true, false) => Some(TooMany::Most),
            (true, true) => None,
        }
    }

    /// The list is in force but for what is held: of its deletions nothing, if `holds_deletions`. From now on the brake protects `objects`. It
    /// remembers what they gave, and what recently deleted objects gave: a list that brings these back adds nothing.
    pub(super) fn protect(&mut self, objects: Scoped, holds_deletions: bool, now: Duration) {
        self.holds_deletions = holds_deletions;
        // Deletions that were confirmed, recorded or released count no more.
        if !holds_deletions && self.deletions.0.take().is_some() {
            self.window.restart(objects);
        } else {
            self.window.accept(objects, now);
        }
        if let Some(given) = &mut self.given {
            given.retain(|key, _| self.window.contains(key));
        }
    }

    /// All additions of a response whose deletions are held: what is not protected, and what would give something else than before.
    /// `listed` is what each object gives.
    pub(super) fn all_additions(&mut self, listed: &BTreeMap<Key, String>) -> Additions {
        let protected = self.window.protected(Scoped::new);
        let (old, new): (BTreeSet<&Key>, BTreeSet<&Key>) = listed.keys().partition(|key| protected.contains_key(*key));
        let is_changed = |key: &&&Key| {
            let before = self.given.as_ref().and_then(|given| given.get(**key));
            before.is_some_and(|before| listed.get(**key) != Some(before))
        };
        Additions {
            changed: old.iter().filter(is_changed).map(|key| (*key).clone()).collect(),
            new: new.into_iter().cloned().collect(),
        }
    }

    /// The additions of a response that are held because there are more than `bound` of them within one sync interval. `listed` is what
    /// each object gives. Without a stored list, the first response of the process is compared with the objects that the cluster has; into
    /// an empty cluster, everything may be added.
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
            self.0 = Some((items.clone(), response.confirmed));
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

    fn scoped(letters: &str) -> Scoped {
        let scope = |letter: char| if letter.is_ascii_uppercase() { "pool" } else { "" };
        let objects = letters.chars();
        objects
            .map(|letter| (Key::new(&letter.to_string()), scope(letter).to_owned()))
            .collect()
    }

    /// A list at a second, what the cloud's record of deletions names then, and whether it is held, and why.
    type Step<'a> = (u64, &'a str, &'a str, Option<TooMany>);

    /// Sends the lists, of which the first is released, over a cluster that has `cluster`.
    fn holds(cluster: &str, few: usize, rule: MassDeletion, steps: &[Step<'_>]) {
        let mut brake = Brake::default();
        for (second, listed, recorded, expected) in steps {
            let (listed, recorded) = (scoped(listed), scoped(recorded));
            let protected = brake.protected(|| scoped(cluster)).clone();
            let missing = protected.keys().filter(|key| !listed.contains_key(*key));
            let deletions: BTreeSet<Key> = missing.cloned().collect();
            let response = response(*second, rule);
            let is_recorded = |key: &Key| recorded.contains_key(key);
            let held = brake.why_held(&deletions, few, response, |key| listed.contains_key(key), is_recorded);
            assert_eq!(held, *expected, "after {second} s of {steps:?} over {cluster}");
            let stays = if held.is_some() { protected } else { listed };
            brake.protect(stays, held.is_some(), response.confirmed);
        }
    }

    use MassDeletion::{Confirm, Release};
    use TooMany::{Emptied, Most};

    #[test]
    fn what_empties_a_kind_or_a_scope_is_held_until_the_record_names_it() {
        for rule in [Confirm, Release] {
            holds(
                "a",
                FEW,
                rule,
                &[
                    (0, "", "", Some(Emptied)),
                    (99, "", "", Some(Emptied)),
                    (100, "", "a", None),
                ],
            );
            holds(
                "abc",
                FEW,
                rule,
                &[(0, "", "ab", Some(Emptied)), (99, "", "abc", None), (100, "", "", None)],
            );
            holds(
                "abX",
                FEW,
                rule,
                &[
                    (0, "ab", "", Some(Emptied)),
                    (99, "ab", "X", None),
                    (100, "a", "", None),
                ],
            );
            // A list that replaces everything does not open it, neither when it comes again.
            holds(
                "abc",
                FEW,
                rule,
                &[
                    (0, "xyz", "", Some(Emptied)),
                    (1, "xyz", "", Some(Emptied)),
                    (99, "xyz", "", Some(Emptied)),
                ],
            );
            // It ends with a list that has what was missing.
            holds(
                "abc",
                FEW,
                rule,
                &[(0, "", "", Some(Emptied)), (1, "abc", "", None), (2, "ab", "", None)],
            );
        }
        // Of more than a few, the rule must let it pass, too.
        let all = "abcdef";
        holds(
            all,
            FEW,
            Confirm,
            &[(0, "", all, Some(Most)), (29, "", all, Some(Most)), (30, "", all, None)],
        );
        holds(
            all,
            FEW,
            Confirm,
            &[(0, "", "", Some(Emptied)), (99, "", "abcde", Some(Emptied))],
        );
        holds(
            all,
            FEW,
            Release,
            &[(0, "", all, Some(Most)), (99, "", all, Some(Most))],
        );
    }

    #[test]
    fn what_deletes_most_of_many_is_held_until_the_rule_lets_it_pass() {
        let all = "abcdefgh";
        holds(all, FEW, Confirm, &[(0, "abcd", "", None)]);
        holds(
            all,
            FEW,
            Confirm,
            &[
                (0, "abc", "defgh", Some(Most)),
                (29, "abc", "", Some(Most)),
                (30, "abc", "", None),
            ],
        );
        holds(
            all,
            FEW,
            Release,
            &[(0, "abc", "defgh", Some(Most)), (999, "abc", "defgh", Some(Most))],
        );
        // Fewer are confirmed, too; more are held anew.
        holds(all, FEW, Confirm, &[(0, "ab", "", Some(Most)), (30, "abc", "", None)]);
        holds(
            all,
            FEW,
            Confirm,
            &[
                (0, "abc", "", Some(Most)),
                (40, "ab", "", Some(Most)),
                (69, "ab", "", Some(Most)),
                (70, "ab", "", None),
            ],
        );
        // Another list in between ends it.
        holds(
            all,
            FEW,
            Confirm,
            &[
                (0, "abc", "", Some(Most)),
                (10, all, "", None),
                (40, "abc", "", Some(Most)),
            ],
        );
        // What was let pass is not counted any more.
        holds(
            all,
            FEW,
            Confirm,
            &[(0, "abc", "", Some(Most)), (30, "abc", "", None), (31, "ab", "", None)],
        );
        // Two of a kind on which others depend are many.
        holds("ab", 1, Release, &[(0, "", "ab", Some(Most))]);
        holds("ab", 1, Release, &[(0, "a", "", None), (300, "", "a", None)]);
    }

    #[test]
    fn what_deletes_most_of_a_few_is_held_until_it_is_recorded_or_the_rule_lets_it_pass() {
        for rule in [Confirm, Release] {
            holds("abcde", FEW, rule, &[(0, "abc", "", None), (300, "ab", "", None)]);
            holds(
                "abcde",
                FEW,
                rule,
                &[(0, "ab", "cd", Some(Most)), (1, "ab", "cde", None), (2, "a", "b", None)],
            );
        }
        holds(
            "abcde",
            FEW,
            Confirm,
            &[(0, "ab", "", Some(Most)), (30, "ab", "", None)],
        );
        holds(
            "abcde",
            FEW,
            Release,
            &[(0, "ab", "", Some(Most)), (30, "ab", "", Some(Most))],
        );
    }

    #[test]
    fn lists_that_delete_one_after_the_other_are_counted_together() {
        holds(
            "abcdefgh",
            FEW,
            Release,
            &[
                (0, "abcdefg", "", None),
                (1, "abcdef", "", None),
                (2, "abcde", "", None),
                (3, "abcd", "", None),
                (4, "abc", "", Some(Most)),
                // What was counted when it began to hold is not forgotten.
                (99, "abc", "", Some(Most)),
                (499, "ab", "", Some(Most)),
                (500, "abcd", "", None),
                (501, "abc", "", None),
            ],
        );
        // Not more than half within each window.
        holds(
            "abcdefgh",
            FEW,
            Release,
            &[
                (0, "abcd", "", None),
                (300, "ab", "", None),
                (600, "a", "", None),
                (900, "", "", Some(Emptied)),
            ],
        );
        holds(
            "abcd",
            FEW,
            Release,
            &[
                (0, "abcdwxyz", "", None),
                (1, "wxyz", "", Some(Emptied)),
                (99, "wxyz", "", Some(Emptied)),
            ],
        );
    }

    #[test]
    fn a_person_releases_what_nothing_else_does() {
        for (cluster, listed) in [("a", ""), ("abcdefgh", ""), ("abcdefgh", "abc"), ("abc", "xyz")] {
            let (mut brake, listed) = (Brake::default(), scoped(listed));
            let protected = brake.protected(|| scoped(cluster)).clone();
            let missing = protected.keys().filter(|key| !listed.contains_key(*key));
            let deletions = missing.cloned().collect();
            let released = Response {
                released: true,
                ..response(0, Release)
            };
            let held = brake.why_held(&deletions, FEW, released, |key| listed.contains_key(key), |_| false);
            assert_eq!(held, None, "{cluster} becomes {listed:?}");
        }
    }

    #[test]
    fn a_list_whose_deletions_are_held_adds_nothing() {
        let mut brake = Brake::default();
        let listed = |letters: &str, gives: &str| -> BTreeMap<Key, String> {
            scoped(letters).into_keys().map(|key| (key, gives.to_owned())).collect()
        };
        brake.protected(|| scoped("ab"));
        brake.held_additions(listed("ab", "read"), BTreeSet::new, 10, response(0, Confirm));
        let found = brake.all_additions(&listed("bxy", "write"));
        let names = |keys: &BTreeSet<Key>| keys.iter().map(Key::name).collect::<String>();
        assert_eq!((&*names(&found.new), &*names(&found.changed)), ("xy", "b"));
        assert!(brake.all_additions(&listed("ab", "read")).is_empty());
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
            let stays = stays.difference(&held.new).map(|key| (key.clone(), String::new()));
            brake.protect(stays.collect(), false, Duration::from_secs(*second));
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
            // What a list deleted comes back, if it gives the same.
            ("abcde", &[(0, "abcde"), (100, "a"), (150, "abcde")], &["/", "/", "/"]),
            (
                "abcde",
                &[(0, "abcde"), (100, "a"), (150, "aBCDE")],
                &["/", "/", "/bcde"],
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
