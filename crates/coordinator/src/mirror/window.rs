//! The objects of a kind that the brake protects, and their deletions within a time window, counted over all lists.
//! Pure.
//!
//! One response is not the measure: a cloud that loses one object with each list loses everything within minutes. So a
//! list is compared with what was protected when the window began. An object that a list added since then does not
//! raise that number, or a list that replaces everything would pass as one that deletes half.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use tidewaiter_kit::Key;

/// Objects with their scopes: the node pool of a label, and one scope for all objects of most kinds.
pub(super) type Scoped = BTreeMap<Key, String>;

/// The memory of one kind. Times are monotonic.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    /// None before the first response of the process.
    protected: Option<Scoped>,
    /// The time when a list added an object.
    added: BTreeMap<Key, Duration>,
    /// The scope of a deleted object, and when a list deleted it.
    deleted: BTreeMap<Key, (String, Duration)>,
}

/// The memory that outlasts the process: keys by their texts, with times of the wall clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Remembered {
    /// The time when the brake began to hold what it holds.
    pub(super) since: Option<Timestamp>,
    /// True if the window stands still, because the last list is held.
    pub(super) holds_list: bool,
    /// The scopes of the protected objects that are not stored as the cloud lists them.
    pub(super) protected: BTreeMap<String, String>,
    /// The scopes of the deleted objects, and when each was deleted.
    pub(super) deleted: BTreeMap<String, (String, Timestamp)>,
    /// The time when each object was added.
    pub(super) added: BTreeMap<String, Timestamp>,
}

/// A moment on both clocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Timestamp,
    pub(super) monotonic: Duration,
}

impl Moment {
    fn wall(&self, at: Duration) -> Timestamp {
        let age = SignedDuration::try_from(self.monotonic.saturating_sub(at)).unwrap_or(SignedDuration::MAX);
        self.now.saturating_sub(age).unwrap_or(Timestamp::MIN)
    }

    /// A time that is still to come, on a clock that was set back, is this moment.
    fn monotonic(&self, at: Timestamp) -> Duration {
        let age = Duration::try_from(self.now.duration_since(at)).unwrap_or_default();
        self.monotonic.saturating_sub(age)
    }
}

impl Remembered {
    /// Returns true if it says what the other one does. What has left the window since may still be in it: it is too
    /// old when it is read.
    pub(super) fn says(&self, other: &Self) -> bool {
        let has = |(key, (scope, _)): (&String, &(String, Timestamp))| {
            self.deleted.get(key).is_some_and(|(known, _)| known == scope)
        };
        (self.since, self.holds_list, &self.protected) == (other.since, other.holds_list, &other.protected)
            && other.deleted.iter().all(has)
            && other.added.keys().all(|key| self.added.contains_key(key))
    }
}

/// The extent of the deletions within the window, those of the latest list included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extent {
    /// The objects that the latest list would delete and that are the last ones of the kind or of a scope.
    pub(super) emptied: BTreeSet<Key>,
    /// The number of objects of which more than half are missing.
    pub(super) most_of: Option<usize>,
}

impl Window {
    /// Returns true if nothing was listed yet.
    pub(super) fn is_new(&self) -> bool {
        self.protected.is_none()
    }

    /// Takes up what another process remembered.
    pub(super) fn recall(&mut self, remembered: &Remembered, at: Moment) {
        let deleted = remembered.deleted.iter();
        self.deleted = deleted
            .map(|(key, (scope, time))| (Key::new(key), (scope.clone(), at.monotonic(*time))))
            .collect();
        let added = remembered.added.iter();
        self.added = added.map(|(key, time)| (Key::new(key), at.monotonic(*time))).collect();
    }

    /// The memory for another process, besides the objects that are `stored`.
    pub(super) fn remembered(&self, stored: impl Fn(&Key) -> bool, at: Moment) -> Remembered {
        let text = |key: &Key| key.text().to_string();
        let protected = self.protected.iter().flatten().filter(|(key, _)| !stored(key));
        let deleted = self.deleted.iter();
        Remembered {
            protected: protected.map(|(key, scope)| (text(key), scope.clone())).collect(),
            deleted: deleted
                .map(|(key, (scope, time))| (text(key), (scope.clone(), at.wall(*time))))
                .collect(),
            added: self
                .added
                .iter()
                .map(|(key, time)| (text(key), at.wall(*time)))
                .collect(),
            ..Remembered::default()
        }
    }

    /// The number of deleted objects that the list does not bring back.
    pub(super) fn deleted(&self, is_listed: impl Fn(&Key) -> bool) -> usize {
        self.deleted.keys().filter(|key| !is_listed(key)).count()
    }

    /// The protected objects: at the first response those that were listed `before`.
    pub(super) fn protected(&mut self, before: impl FnOnce() -> Scoped) -> &Scoped {
        self.protected.get_or_insert_with(before)
    }

    /// Forgets what happened before the window that ends `now`.
    pub(super) fn slide(&mut self, now: Duration, length: Duration) {
        let is_recent = |at: &Duration| at.saturating_add(length) > now;
        self.added.retain(|_, at| is_recent(at));
        self.deleted.retain(|_, (_, at)| is_recent(at));
    }

    /// The extent of the deletions if the list contains only what `is_listed`.
    pub(super) fn extent(&self, is_listed: impl Fn(&Key) -> bool) -> Extent {
        let deleted = self.deleted.iter().map(|(key, (scope, _))| (key, scope));
        self.extent_of(&deleted.chain(self.protected.iter().flatten()).collect(), is_listed)
    }

    /// Returns true if the list alone lacks more than half, or the last objects, of those that are protected.
    pub(super) fn lacks_most(&self, is_listed: impl Fn(&Key) -> bool) -> bool {
        let protected = self.protected.iter().flatten().collect();
        self.extent_of(&protected, is_listed) != Extent::default()
    }

    fn extent_of(&self, all: &BTreeMap<&Key, &String>, is_listed: impl Fn(&Key) -> bool) -> Extent {
        let older = all.iter().filter(|(key, _)| !self.added.contains_key(**key));
        let older: BTreeMap<&Key, &String> = older.map(|(key, scope)| (*key, *scope)).collect();
        let mut extent = Extent::default();
        for objects in [all, &older] {
            let missing = objects.keys().filter(|key| !is_listed(key)).count();
            if missing * 2 > objects.len() {
                extent.most_of = extent.most_of.max(Some(objects.len()));
            }
            let scopes_left: BTreeSet<&String> = objects
                .iter()
                .filter(|(key, _)| is_listed(key))
                .map(|(_, scope)| *scope)
                .collect();
            let emptied = objects.iter().filter(|(_, scope)| !scopes_left.contains(*scope));
            let last = emptied.filter(|(key, _)| !self.deleted.contains_key(**key));
            extent.emptied.extend(last.map(|(key, _)| (*key).clone()));
        }
        extent
    }

    /// The list is in force: these are protected from now on.
    pub(super) fn accept(&mut self, listed: Scoped, now: Duration) {
        let before = self.protected.take().unwrap_or_default();
        let added = listed.keys().filter(|key| !before.contains_key(*key));
        self.added.extend(added.map(|key| (key.clone(), now)));
        self.deleted.retain(|key, _| !listed.contains_key(key));
        for (key, scope) in before {
            if !listed.contains_key(&key) {
                self.deleted.insert(key, (scope, now));
            }
        }
        self.protected = Some(listed);
    }

    /// The list is in force after a confirmation or a release, so nothing is counted of what it deletes.
    pub(super) fn restart(&mut self, listed: Scoped) {
        *self = Self {
            protected: Some(listed),
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);

    fn scoped(names: &str) -> Scoped {
        let scope = |letter: char| if letter.is_ascii_uppercase() { "pool" } else { "" };
        let objects = names.chars();
        objects
            .map(|letter| (Key::new(&letter.to_string()), scope(letter).to_owned()))
            .collect()
    }

    /// Accepts lists, each at its second, and returns the extent of the last one.
    fn extent(lists: &[(u64, &str)]) -> (String, Option<usize>) {
        let mut window = Window::default();
        let ((_, last), before) = lists.split_last().unwrap();
        for (second, names) in before {
            let now = Duration::from_secs(*second);
            window.slide(now, INTERVAL);
            window.accept(scoped(names), now);
        }
        window.slide(Duration::from_secs(lists.last().unwrap().0), INTERVAL);
        let last = scoped(last);
        let Extent { emptied, most_of } = window.extent(|key| last.contains_key(key));
        (emptied.iter().map(Key::name).collect(), most_of)
    }

    #[test]
    fn deletions_are_counted_over_all_lists_of_an_interval() {
        for (lists, emptied, most_of) in [
            (&[(0, ""), (1, "")][..], "", None),
            (&[(0, "a"), (100, "")], "a", Some(1)),
            (&[(0, "ab"), (100, "a")], "", None),
            (&[(0, "abc"), (100, "a")], "", Some(3)),
            (&[(0, "abcd"), (100, "ab")], "", None),
            // One with each list.
            (&[(0, "abcd"), (100, "abc"), (101, "ab"), (102, "a")], "", Some(4)),
            (&[(0, "abcd"), (100, "abc"), (131, "ab"), (162, "a")], "", None),
            (&[(0, "ab"), (100, "a"), (101, "")], "a", Some(2)),
            // Everything is replaced, at once or in steps, also of a kind that was just filled.
            (&[(0, "abc"), (100, "xyz")], "abc", Some(3)),
            (&[(0, "abc"), (100, "abcxyz"), (101, "xyz")], "abc", Some(3)),
            (&[(0, "abc"), (1, "")], "abc", Some(3)),
            (&[(0, "abc"), (100, "abcxyz"), (131, "xyz")], "", None),
            // What a list brings back is not missing.
            (&[(0, "abcd"), (100, "abc"), (101, "abcd"), (102, "ab")], "", None),
            // The scope of a node pool.
            (&[(0, "abcdX"), (100, "abcd")], "X", None),
            (&[(0, "abcdXY"), (100, "abcdX")], "", None),
            (&[(0, "abcdXY"), (100, "abcdX"), (101, "abcd")], "X", None),
        ] {
            assert_eq!(extent(lists), (emptied.to_owned(), most_of), "{lists:?}");
        }
    }

    #[test]
    fn nothing_is_counted_of_a_list_that_was_released() {
        let mut window = Window::default();
        window.accept(scoped("abcdefgh"), Duration::ZERO);
        window.restart(scoped("ab"));
        let is_listed = |key: &Key| key.name() == "a";
        assert_eq!(window.extent(is_listed), Extent::default());
        assert_eq!(window.protected(Scoped::new), &scoped("ab"));
    }
}
