//! The brake: a wrong response must not delete what the cloud has. Pure.
//!
//! It counts the objects that the cloud listed before: at the start of the process those of the stored list and,
//! without one, those of the cluster whose name is one of the cloud. Another object of the cluster is neither counted
//! nor protected.
//!
//! | what a list does | it is held until |
//! | --- | --- |
//! | deletes an object that the cloud's record of deletions does not name | the record names it; the others go |
//! | deletes, within ten sync intervals, more than half of more than `few` objects | the rule lets it pass |
//!
//! A record that cannot be read names nothing. The rule is [`MassDeletion`]. With `Confirm`, a later response confirms
//! a list: at least one sync interval after it, and with no deletion that the first one did not have. It confirms
//! nothing that the record does not name. Kinds that only a person releases have the rule `Release`. A person can
//! always release a list, by its revision.
//!
//! An older cloud has no record. Then
//!
//! | what a list does within ten sync intervals | it is held until |
//! | --- | --- |
//! | deletes the last objects of a kind or of a scope | a person releases it |
//! | deletes more than half of the objects | the rule lets it pass |
//!
//! A list that itself lacks more than half, or the last objects, and of which deletions are held, adds nothing. While
//! more than half of the window is missing and some of it is held, the window does not slide. It outlasts the process.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tidewaiter_kit::Key;

use super::record::Record;
use super::window::{Extent, Moment, Remembered, Scoped, Window};

/// The condition under which a mass deletion takes place.
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
    deletions: Holding,
    window: Window,
    /// True if the window stands still, because too much is missing and held.
    holds_list: bool,
    /// The time when it began to hold what it holds.
    since: Option<Timestamp>,
}

/// The first of the consecutive responses with the same held deletions, and its time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Holding(Option<(BTreeSet<Key>, Duration)>);

/// A response that would delete objects, and the rule for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    /// The time when the cloud last sent it.
    pub(super) confirmed: Duration,
    /// True if a person released exactly this response.
    pub(super) released: bool,
    /// The condition under which it passes.
    pub(super) rule: MassDeletion,
    /// The sync interval.
    pub(super) interval: Duration,
}

/// The held part of the deletions of a list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct DeletionHold {
    /// These objects stay.
    pub(super) objects: BTreeSet<Key>,
    /// The reason why there are too many of them, unless each is held for itself.
    pub(super) too_many: Option<TooMany>,
    /// The number of objects deleted before that count with these.
    pub(super) counted: usize,
    /// True if the list adds nothing meanwhile, because it lacks too much to be right.
    pub(super) holds_additions: bool,
}

/// The reason why deletions are held that the record does not forbid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TooMany {
    /// Nothing would be left of the kind or of a scope.
    Emptied,
    /// Less than half would be left.
    Most,
}

/// The largest number of objects of which more than half may be deleted if the cloud's record names them, unless others
/// depend on them.
pub(super) const FEW: usize = 5;

/// Deletions are counted for this many sync intervals: the lists that follow a deletion soon would otherwise delete
/// everything step by step.
const COUNTED_INTERVALS: u32 = 10;

impl Brake {
    /// Takes up what another process remembered, before the first list.
    pub(super) fn recall(&mut self, remembered: &Remembered, at: Moment) {
        if self.window.is_new() {
            self.window.recall(remembered, at);
            (self.holds_list, self.since) = (remembered.holds_list, remembered.since);
        }
    }

    /// The memory for another process, besides the objects that are `stored`.
    pub(super) fn remembered(&self, stored: impl Fn(&Key) -> bool, at: Moment) -> Remembered {
        Remembered {
            since: self.since,
            holds_list: self.holds_list,
            ..self.window.remembered(stored, at)
        }
    }

    /// The time when it began to hold, if anything `is_held` now.
    pub(super) fn held_since(&mut self, is_held: bool, now: Timestamp) -> Option<Timestamp> {
        self.since = is_held.then(|| self.since.unwrap_or(now));
        self.since
    }

    /// The objects that it protects: at the first response of the process those that were listed `before`.
    pub(super) fn protected(&mut self, before: impl FnOnce() -> Scoped) -> &Scoped {
        self.window.protected(before)
    }

    /// A list that cannot be read completely confirms no deletion.
    pub(super) fn confirms_nothing(&mut self) {
        self.deletions = Holding::default();
    }

    /// The hold of a response that would delete `deletions`. `is_listed` contains what stays.
    pub(super) fn hold(
        &mut self,
        deletions: &BTreeSet<Key>,
        few: usize,
        response: Response,
        record: &Record,
        is_listed: impl Fn(&Key) -> bool,
    ) -> DeletionHold {
        if !self.holds_list {
            self.window
                .slide(response.confirmed, response.interval.saturating_mul(COUNTED_INTERVALS));
        }
        let is_unrecorded = |key: &Key| !response.released && record.lacks(key.name());
        let (unrecorded, others): (BTreeSet<Key>, BTreeSet<Key>) = deletions.iter().cloned().partition(is_unrecorded);
        let is_listed = &is_listed;
        let stays = |key: &Key| is_listed(key) || unrecorded.contains(key);
        let too_many = self.too_many(&others, few, response, record, stays);
        let lacks_most = self.window.extent(is_listed) != Extent::default();
        let is_any_held = too_many.is_some() || !unrecorded.is_empty();
        self.holds_list = too_many.is_some() || (lacks_most && is_any_held);
        DeletionHold {
            counted: self.window.deleted(is_listed),
            objects: match too_many {
                Some(_) => deletions.clone(),
                None => unrecorded,
            },
            too_many,
            holds_additions: is_any_held && self.window.lacks_most(is_listed),
        }
    }

    /// The reason why these deletions are held as a mass deletion, if they are.
    fn too_many(
        &mut self,
        deletions: &BTreeSet<Key>,
        few: usize,
        response: Response,
        record: &Record,
        is_listed: impl Fn(&Key) -> bool,
    ) -> Option<TooMany> {
        let Extent { emptied, most_of } = self.window.extent(is_listed);
        if deletions.is_empty() || (emptied.is_empty() && most_of.is_none()) {
            self.deletions = Holding::default();
            return None;
        }
        let is_let = self.deletions.lets(deletions, response);
        let is_recorded = |key: &Key| record.names(key.name());
        let may_empty = response.released || emptied.iter().all(is_recorded);
        let may_delete_most = match most_of {
            None => true,
            Some(count) if count > few => is_let,
            Some(_) => is_let || deletions.iter().all(is_recorded),
        };
        match (may_empty, may_delete_most) {
            (false, _) => Some(TooMany::Emptied),
            (true, false) => Some(TooMany::Most),
            (true, true) => None,
        }
    }

    /// The list is in force but for what is held; `holds_mass` says whether that is a mass deletion. From now on the
    /// brake protects `objects`.
    pub(super) fn protect(&mut self, objects: Scoped, holds_mass: bool, now: Duration) {
        // Deletions that were confirmed, recorded or released count no more.
        if !holds_mass && self.deletions.0.take().is_some() {
            self.window.restart(objects);
        } else {
            self.window.accept(objects, now);
        }
    }
}

impl Holding {
    /// Returns true if the response may delete these.
    fn lets(&mut self, deletions: &BTreeSet<Key>, response: Response) -> bool {
        if response.released {
            self.0 = Some((deletions.clone(), response.confirmed));
            return true;
        }
        let known = self.0.as_ref().filter(|(held, _)| deletions.is_subset(held));
        let Some((_, since)) = known else {
            self.0 = Some((deletions.clone(), response.confirmed));
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

    /// A list at a second, what the cloud's record of deletions names then, and what is held.
    type Step<'a> = (u64, &'a str, &'a str, &'a str);

    /// In place of what the record names.
    const ABSENT: &str = "absent";
    const UNREAD: &str = "unread";

    fn record(names: &str) -> Record {
        match names {
            ABSENT => Record::Absent,
            UNREAD => Record::Unread,
            names => Record::Names(names.chars().map(String::from).collect()),
        }
    }

    /// The hold as a text: the objects, why there are too many of them, and a plus if the additions of the list are
    /// held.
    fn text(held: &DeletionHold) -> String {
        let objects: String = held.objects.iter().map(Key::name).collect();
        let too_many = held.too_many.map_or(String::new(), |why| format!(" {why:?}"));
        let additions = if held.holds_additions { "+" } else { "" };
        format!("{objects}{too_many}{additions}")
    }

    /// Sends the lists over a cluster that has `cluster`.
    fn holds(cluster: &str, few: usize, rule: MassDeletion, steps: &[Step<'_>]) {
        let mut brake = Brake::default();
        for (second, listed, names, expected) in steps {
            let listed = scoped(listed);
            let mut stays = brake.protected(|| scoped(cluster)).clone();
            let missing = stays.keys().filter(|key| !listed.contains_key(*key));
            let deletions: BTreeSet<Key> = missing.cloned().collect();
            let response = response(*second, rule);
            let held = brake.hold(&deletions, few, response, &record(names), |key| {
                listed.contains_key(key)
            });
            assert_eq!(text(&held), *expected, "after {second} s of {steps:?} over {cluster}");
            stays.retain(|key, _| listed.contains_key(key) || held.objects.contains(key));
            if !held.holds_additions {
                stays.extend(listed);
            }
            brake.protect(stays, held.too_many.is_some(), response.confirmed);
        }
    }

    use MassDeletion::{Confirm, Release};

    #[test]
    fn what_the_record_does_not_name_stays() {
        for rule in [Confirm, Release] {
            for few in [1, FEW] {
                // However long it lasts, and one by one.
                let lists: [Step<'_>; 7] = [
                    (0, "abcde", "", "f"),
                    (1, "abcde", "", "f"),
                    (60, "abcd", "", "ef"),
                    (90, "abc", "", "def"),
                    (120, "ab", "", "cdef+"),
                    (999, "", "", "abcdef+"),
                    (9_999, "", "", "abcdef+"),
                ];
                holds("abcdef", few, rule, &lists);
                holds(
                    "a",
                    few,
                    rule,
                    &[(0, "", "", "a+"), (99, "", "", "a+"), (100, "", "a", "")],
                );
            }
            // The record names one of two: the other one stays, and what the list adds is added.
            holds(
                "abcdef",
                FEW,
                rule,
                &[(0, "abcdx", "e", "f"), (1, "abcx", "de", "f"), (2, "abcx", "def", "")],
            );
            // The list has it again.
            holds(
                "abc",
                FEW,
                rule,
                &[(0, "ab", "", "c"), (1, "abc", "", ""), (2, "ac", "", "b")],
            );
            // A list that replaces everything, or the labels of a node pool.
            holds("abc", FEW, rule, &[(0, "xyz", "", "abc+"), (99, "xyz", "", "abc+")]);
            holds("abX", FEW, rule, &[(0, "abY", "", "X+"), (99, "abY", "X", "")]);
            // The record cannot be read for a while.
            holds(
                "abcdef",
                FEW,
                rule,
                &[
                    (0, "abcde", UNREAD, "f"),
                    (99, "ab", UNREAD, "cdef+"),
                    (100, "abcde", "f", ""),
                ],
            );
        }
    }

    #[test]
    fn what_the_record_names_goes_and_the_rule_lets_most_of_many_pass() {
        for rule in [Confirm, Release] {
            holds("a", FEW, rule, &[(0, "", "a", "")]);
            holds(
                "abc",
                FEW,
                rule,
                &[(0, "", "ab", "c+"), (99, "", "abc", ""), (100, "", "", "")],
            );
            holds("abX", FEW, rule, &[(0, "ab", "X", ""), (100, "a", "b", "")]);
            holds(
                "abcde",
                FEW,
                rule,
                &[(0, "ab", "cd", "e+"), (1, "ab", "cde", ""), (2, "a", "b", "")],
            );
            holds("abcdefgh", FEW, rule, &[(0, "abcd", "efgh", "")]);
        }
        let all = "abcdef";
        holds(
            all,
            FEW,
            Confirm,
            &[
                (0, "", all, "abcdef Most+"),
                (29, "", all, "abcdef Most+"),
                (30, "", all, ""),
            ],
        );
        holds(
            all,
            FEW,
            Release,
            &[(0, "", all, "abcdef Most+"), (999, "", all, "abcdef Most+")],
        );
        // What is confirmed is only what is recorded.
        holds(
            "abcdefgh",
            FEW,
            Confirm,
            &[
                (0, "ab", "cdefg", "cdefgh Most+"),
                (30, "ab", "cdefg", "h+"),
                (31, "ab", "cdefgh", ""),
            ],
        );
        // Two of a kind on which others depend are many.
        holds("ab", 1, Release, &[(0, "", "ab", "ab Most+")]);
        holds("ab", 1, Release, &[(0, "a", "b", ""), (300, "", "ab", "")]);
    }

    #[test]
    fn without_a_record_what_empties_a_kind_or_a_scope_waits_for_a_person() {
        for rule in [Confirm, Release] {
            for (cluster, list, held) in [
                ("a", "", "a Emptied+"),
                ("abX", "ab", "X Emptied+"),
                ("abcdef", "", "abcdef Emptied+"),
                // A list that replaces everything does not open it, neither when it comes again.
                ("abc", "xyz", "abc Emptied+"),
            ] {
                let steps = [0, 1, 99, 999].map(|second| (second, list, ABSENT, held));
                holds(cluster, FEW, rule, &steps);
            }
            // It ends with a list that has what was missing.
            holds(
                "abc",
                FEW,
                rule,
                &[
                    (0, "", ABSENT, "abc Emptied+"),
                    (1, "abc", ABSENT, ""),
                    (2, "ab", ABSENT, ""),
                ],
            );
        }
    }

    #[test]
    fn without_a_record_what_deletes_most_is_held_until_the_rule_lets_it_pass() {
        let all = "abcdefgh";
        holds(all, FEW, Confirm, &[(0, "abcd", ABSENT, "")]);
        for (cluster, list, held) in [(all, "abc", "defgh Most+"), ("abcde", "ab", "cde Most+")] {
            let (first, early) = ((0, list, ABSENT, held), (29, list, ABSENT, held));
            holds(cluster, FEW, Confirm, &[first, early, (30, list, ABSENT, "")]);
            holds(cluster, FEW, Release, &[first, (999, list, ABSENT, held)]);
        }
        // Fewer are confirmed, too; more are held again.
        holds(
            all,
            FEW,
            Confirm,
            &[(0, "ab", ABSENT, "cdefgh Most+"), (30, "abc", ABSENT, "")],
        );
        holds(
            all,
            FEW,
            Confirm,
            &[
                (0, "abc", ABSENT, "defgh Most+"),
                (40, "ab", ABSENT, "cdefgh Most+"),
                (69, "ab", ABSENT, "cdefgh Most+"),
                (70, "ab", ABSENT, ""),
            ],
        );
        // Another list in between ends it.
        holds(
            all,
            FEW,
            Confirm,
            &[
                (0, "abc", ABSENT, "defgh Most+"),
                (10, all, ABSENT, ""),
                (40, "abc", ABSENT, "defgh Most+"),
            ],
        );
        // What was let pass is not counted any more.
        holds(
            all,
            FEW,
            Confirm,
            &[
                (0, "abc", ABSENT, "defgh Most+"),
                (30, "abc", ABSENT, ""),
                (31, "ab", ABSENT, ""),
            ],
        );
    }

    #[test]
    fn lists_that_delete_one_after_the_other_are_counted_together() {
        for names in [ABSENT, "abcdefgh"] {
            holds(
                "abcdefgh",
                FEW,
                Release,
                &[
                    (0, "abcdefg", names, ""),
                    (1, "abcdef", names, ""),
                    (2, "abcde", names, ""),
                    (3, "abcd", names, ""),
                    (4, "abcx", names, "d Most"),
                    // What was counted when it began to hold is not forgotten.
                    (99, "abcx", names, "d Most"),
                    (499, "ab", names, "cdx Most+"),
                    (500, "abcdx", names, ""),
                    (501, "abcx", names, ""),
                ],
            );
        }
        // Not more than half within each window.
        holds(
            "abcdefgh",
            FEW,
            Release,
            &[
                (0, "abcd", ABSENT, ""),
                (300, "ab", ABSENT, ""),
                (600, "a", ABSENT, ""),
                (900, "", ABSENT, "a Emptied+"),
            ],
        );
        for (names, held) in [(ABSENT, "abcd Emptied+"), ("", "abcd+")] {
            holds(
                "abcd",
                FEW,
                Release,
                &[
                    (0, "abcdwxyz", names, ""),
                    (1, "wxyz", names, held),
                    (999, "wxyz", names, held),
                ],
            );
        }
    }

    #[test]
    fn a_person_releases_what_nothing_else_does() {
        for (cluster, listed) in [
            ("a", ""),
            ("abcdefgh", ""),
            ("abcdefgh", "abc"),
            ("abc", "xyz"),
            ("abc", "ab"),
        ] {
            for names in ["", ABSENT, UNREAD] {
                let (mut brake, listed) = (Brake::default(), scoped(listed));
                let protected = brake.protected(|| scoped(cluster)).clone();
                let missing = protected.keys().filter(|key| !listed.contains_key(*key));
                let deletions = missing.cloned().collect();
                let released = Response {
                    released: true,
                    ..response(0, Release)
                };
                let held = brake.hold(&deletions, FEW, released, &record(names), |key| {
                    listed.contains_key(key)
                });
                assert_eq!(text(&held), "", "{cluster} becomes {listed:?}");
            }
        }
    }

    /// Another process, one second later.
    fn restarted(mut brake: Brake, second: u64) -> Brake {
        let at = |monotonic: u64| Moment {
            now: Timestamp::from_second(1_000_000 + i64::try_from(second).unwrap()).unwrap(),
            monotonic: Duration::from_secs(monotonic),
        };
        let remembered = brake.remembered(|_| true, at(second));
        let text = serde_json::to_string(&remembered).unwrap();
        let remembered: Remembered = serde_json::from_str(&text).unwrap();
        let stored = brake.protected(Scoped::new).clone();
        let mut next = Brake::default();
        // Its clock begins elsewhere.
        next.recall(&remembered, at(second + 5_000));
        next.protected(|| stored);
        next
    }

    #[test]
    fn what_is_counted_and_held_outlasts_the_process() {
        for (first, second, last, expected) in [
            // Within the window, and after it.
            (10, 20, 30, "ef Most"),
            (10, 20, 9_000, "ef Most"),
            // What was deleted before the window is not counted.
            (10, 400, 401, ""),
        ] {
            let mut brake = Brake::default();
            let mut before = scoped("abcdefghi");
            let steps = [(first, "efghi", 0), (second, "ghi", 0), (last, "ghi", 5_000)];
            let mut found = String::new();
            for (second, listed, skew) in steps {
                if skew > 0 {
                    brake = restarted(brake, second - 1);
                }
                let listed = scoped(listed);
                let mut stays = brake.protected(|| before.clone()).clone();
                let deletions = stays.keys().filter(|key| !listed.contains_key(*key)).cloned().collect();
                let response = response(second + skew, Release);
                let held = brake.hold(&deletions, FEW, response, &record("abcdef"), |key| {
                    listed.contains_key(key)
                });
                stays.retain(|key, _| listed.contains_key(key) || held.objects.contains(key));
                brake.protect(stays.clone(), held.too_many.is_some(), response.confirmed);
                (before, found) = (stays, text(&held));
            }
            assert_eq!(found, expected, "{first} {second} {last}");
        }
        let mut brake = Brake::default();
        brake.protected(|| scoped("ab"));
        let begun = Timestamp::from_second(5).unwrap();
        assert_eq!(brake.held_since(true, begun), Some(begun));
        let mut next = restarted(brake, 60);
        assert_eq!(next.held_since(true, Timestamp::from_second(60).unwrap()), Some(begun));
        assert_eq!(next.held_since(false, begun), None);
    }
}
