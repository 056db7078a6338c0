//! Holds the removal of many users at the same time until it is confirmed. Pure.
//!
//! One user that is removed loses access at once. Nobody left, or more than half of more than five users gone, may be a
//! mistake: `kubectl delete users --all`, a definition that was deleted, a schema that drops fields, an etcd that was
//! restored. A user of whose keys none stays is gone as well: otherwise anybody with write access to Users could lock
//! all users out by replacing keys. Such a removal waits until the mirror of the cloud confirms it: `CloudSync` is
//! `Synced`, counts as many Users as we see, and names another list of the cloud than when the users were last
//! complete. A termination of the coordinator, which removes all Users, confirms it, too.
//!
//! An agent that starts does not know what the one before it held, nor which list of the cloud that one had applied. So
//! its first removal waits for the mirror, however few it removes, and one that may be a mistake waits for another list
//! than that which it finds. The same is true of an agent that finds the mirror's first list after a removal.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_api::cloud_sync::SYNCED;
use tidewaiter_api::{CloudSync, ConditionStatus};
use uuid::Uuid;

use crate::authorized_keys::{LoginKey, Logins};

/// A list with this many users or fewer is only guarded against becoming empty, as in the mirror.
const MAX_UNGUARDED_USERS: usize = 5;

/// The time after which further removals are counted separately.
const REMOVAL_WINDOW: Duration = Duration::from_mins(10);

/// The state of the mirror of Users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MirrorState {
    /// True if the last response of the cloud was applied.
    pub(crate) is_synced: bool,
    /// The Users that it manages in the cluster.
    pub(crate) objects: usize,
    /// The revision of the cloud's list that it applied; empty before the first one.
    pub(crate) revision: String,
    /// True if it holds deletions itself.
    pub(crate) is_held: bool,
    /// The time of the last response of the cloud, as of the last write.
    pub(crate) last_success: Option<Timestamp>,
    /// True if everything that the coordinator manages is being removed.
    pub(crate) is_terminating: bool,
}

impl MirrorState {
    /// The state in `CloudSync`, if it is there and knows Users.
    pub(crate) fn of(sync: Option<&CloudSync>, is_terminating: bool) -> Self {
        let status = sync.and_then(|sync| sync.status.as_ref());
        let users = status.and_then(|status| status.kinds.iter().find(|kind| kind.kind == "User"));
        let condition = sync.and_then(|sync| sync.condition(SYNCED));
        Self {
            is_synced: users.is_some() && condition.is_some_and(|it| it.status == ConditionStatus::True),
            objects: users.map_or(0, |users| usize::try_from(users.objects).unwrap_or(usize::MAX)),
            revision: users.map(|users| users.revision.clone()).unwrap_or_default(),
            is_held: users.is_some_and(|users| users.held.is_some()),
            last_success: users.and_then(|users| users.last_success),
            is_terminating,
        }
    }
}

/// The state that the brake compares with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brake {
    /// The users that could log in, and their keys, when the users were last complete.
    complete: Arc<Logins>,
    /// The revision of the cloud's list that the mirror confirmed last, if it is known, and the users that could log in
    /// then.
    revision: Option<String>,
    confirmed: Option<Arc<Logins>>,
    /// The time when somebody's access was last changed; monotonic.
    changed: Duration,
    last: Arc<Logins>,
    /// True if an agent has started and nothing was applied since.
    is_new: bool,
}

impl Brake {
    /// Compares with those that can log in when the agent starts.
    pub(crate) fn new(present: Arc<Logins>, now: Duration) -> Self {
        Self {
            last: Arc::clone(&present),
            complete: present,
            revision: None,
            confirmed: None,
            changed: now,
            is_new: true,
        }
    }

    /// Returns true if the removal of those that are not in `wanted` waits. `users` is the number of Users in the
    /// cluster.
    pub(crate) fn holds(&mut self, wanted: &Logins, users: usize, mirror: &MirrorState) -> bool {
        let (count, gone) = (self.complete.len(), gone(&self.complete, wanted));
        // The first list that it finds: a new agent cannot tell it from one that it should wait for, nor can one that
        // finds it after a removal.
        if (self.is_new || gone > 0) && self.revision.is_none() && !mirror.revision.is_empty() {
            self.revision = Some(mirror.revision.clone());
        }
        let is_all = gone == count;
        let is_most = count > MAX_UNGUARDED_USERS && gone * 2 > count;
        if is_all || is_most {
            return gone > 0 && !self.confirms(wanted, users, mirror);
        }
        gone > 0 && self.is_new && !mirror.is_terminating && !agrees(users, mirror)
    }

    /// True with another list of the cloud; or with the same, when all its users are still there, and only users that
    /// were added since are gone.
    fn confirms(&self, wanted: &Logins, users: usize, mirror: &MirrorState) -> bool {
        let is_other = self.revision.as_ref() != Some(&mirror.revision);
        let has_all = || {
            self.confirmed
                .as_ref()
                .is_some_and(|confirmed| gone(confirmed, wanted) == 0)
        };
        mirror.is_terminating || (agrees(users, mirror) && (is_other || has_all()))
    }

    /// `applied` was applied, and nothing is held.
    pub(crate) fn release(&mut self, applied: &Arc<Logins>, users: usize, mirror: &MirrorState, now: Duration) {
        self.is_new = false;
        if *applied != self.last {
            self.changed = now;
            self.last = Arc::clone(applied);
        }
        // With the same list of the cloud, a change of the Users is somebody else's.
        let is_other = self.revision.as_ref() != Some(&mirror.revision);
        if agrees(users, mirror) && is_other {
            self.revision = Some(mirror.revision.clone());
            self.confirmed = Some(Arc::clone(applied));
            self.complete = Arc::clone(applied);
        } else if now.saturating_sub(self.changed) >= REMOVAL_WINDOW {
            self.complete = Arc::clone(applied);
        } else if *applied != self.complete {
            let complete = Arc::make_mut(&mut self.complete);
            for (user, keys) in applied.iter() {
                complete.entry(*user).or_insert_with(|| keys.clone());
            }
        }
    }
}

/// The number of users that are gone: of their keys none is left.
fn gone(before: &Logins, wanted: &Logins) -> usize {
    let is_gone = |(user, keys): &(&Uuid, &Vec<LoginKey>)| {
        let mut now = wanted.get(*user).into_iter().flatten();
        !now.any(|key| keys.iter().any(|known| known.data == key.data))
    };
    before.iter().filter(is_gone).count()
}

/// Returns true if the mirror has applied its list, and all of it is what we see.
fn agrees(users: usize, mirror: &MirrorState) -> bool {
    mirror.is_synced && !mirror.is_held && !mirror.revision.is_empty() && users >= mirror.objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> LoginKey {
        LoginKey {
            data: name.to_owned(),
            fingerprint: String::new(),
            end: None,
        }
    }

    /// Users with a key of this name each.
    fn with(numbers: std::ops::Range<u128>, name: &str) -> Arc<Logins> {
        let logins = numbers.map(|number| (Uuid::from_u128(number), vec![key(name)]));
        Arc::new(logins.collect())
    }

    fn ids(numbers: std::ops::Range<u128>) -> Arc<Logins> {
        with(numbers, "own")
    }

    fn mirror(objects: usize, revision: &str) -> MirrorState {
        MirrorState {
            is_synced: true,
            objects,
            revision: revision.to_owned(),
            ..MirrorState::default()
        }
    }

    /// A brake that has seen `count` users complete with the list `one`.
    fn brake(count: u128) -> Brake {
        let mut brake = Brake::new(Arc::default(), Duration::ZERO);
        let users = usize::try_from(count).unwrap();
        brake.release(&ids(0..count), users, &mirror(users, "one"), Duration::ZERO);
        brake
    }

    #[test]
    fn few_removals_pass_and_many_wait_for_the_mirror() {
        let away = MirrorState::default();
        let held = MirrorState {
            is_held: true,
            ..mirror(0, "two")
        };
        let failing = MirrorState {
            is_synced: false,
            ..mirror(0, "two")
        };
        let ends = MirrorState {
            is_terminating: true,
            ..MirrorState::default()
        };
        for (before, after, mirror, expected, why) in [
            (5, 1, away.clone(), false, "few"),
            (10, 5, away.clone(), false, "half"),
            (10, 4, away.clone(), true, "more than half, and no mirror"),
            (1, 0, away, true, "nobody is left"),
            (
                1,
                0,
                mirror(0, "one"),
                true,
                "the list is the same, so the cloud removed nobody",
            ),
            (1, 0, mirror(0, "two"), false, "the cloud removed the last one"),
            (10, 0, mirror(10, "two"), true, "the mirror still counts ten"),
            (10, 0, mirror(0, "two"), false, "the cloud removed all"),
            (10, 0, held, true, "the mirror holds"),
            (10, 0, failing, true, "the mirror is not synced"),
            (10, 0, mirror(0, ""), true, "the mirror has no list"),
            (10, 0, ends, false, "the coordinator terminates"),
        ] {
            let users = usize::try_from(after).unwrap();
            assert_eq!(brake(before).holds(&ids(0..after), users, &mirror), expected, "{why}");
        }
    }

    #[test]
    fn removals_one_after_the_other_are_taken_together() {
        let away = MirrorState::default();
        let mut brake = brake(10);
        let minute = Duration::from_mins(1);
        for left in [9, 8, 7, 6, 5] {
            let users = usize::try_from(left).unwrap();
            assert!(!brake.holds(&ids(0..left), users, &away), "{left}");
            brake.release(&ids(0..left), users, &away, minute);
        }
        assert!(brake.holds(&ids(0..4), 4, &away));
        // Five are complete when they stay for long, or when the mirror confirms them.
        let mut later = brake.clone();
        later.release(&ids(0..5), 5, &away, minute + REMOVAL_WINDOW);
        assert!(!later.holds(&ids(0..1), 1, &away));
        brake.release(&ids(0..5), 5, &mirror(5, "two"), minute);
        assert!(!brake.holds(&ids(0..1), 1, &away));
    }

    #[test]
    fn an_agent_that_starts_compares_with_the_file() {
        let mut brake = Brake::new(ids(0..3), Duration::ZERO);
        assert!(brake.holds(&ids(0..0), 0, &MirrorState::default()));
        assert!(
            brake.holds(&ids(0..0), 0, &mirror(0, "one")),
            "somebody may have deleted all Users, and the mirror counts them"
        );
        assert!(!brake.holds(&ids(0..0), 0, &mirror(0, "two")), "the cloud says so");
        let mut brake = Brake::new(ids(0..3), Duration::ZERO);
        assert!(
            !brake.holds(&ids(0..2), 2, &mirror(2, "one")),
            "one was removed while it was away"
        );
    }

    #[test]
    fn a_mirror_that_is_seen_after_the_removal_does_not_confirm_it() {
        let mut brake = Brake::new(Arc::default(), Duration::ZERO);
        brake.release(&ids(0..1), 1, &MirrorState::default(), Duration::ZERO);
        assert!(brake.holds(&ids(0..0), 0, &mirror(1, "one")));
        assert!(brake.holds(&ids(0..0), 0, &mirror(0, "one")), "it counts what is left");
        assert!(!brake.holds(&ids(0..0), 0, &mirror(0, "two")), "the cloud says so");
    }

    #[test]
    fn what_was_held_before_a_restart_stays_held() {
        // The agent before had removed four of eight, and held two more.
        let away = MirrorState::default();
        let mut brake = Brake::new(ids(0..4), Duration::ZERO);
        assert!(brake.holds(&ids(0..2), 2, &away));
        assert!(!brake.holds(&ids(0..2), 2, &mirror(2, "one")));
        assert!(!brake.holds(&ids(0..5), 5, &away), "no user is removed");
        brake.release(&ids(0..5), 5, &away, Duration::ZERO);
        assert!(!brake.holds(&ids(0..4), 4, &away), "one that is removed later");
    }

    #[test]
    fn what_somebody_added_goes_again_with_the_same_list_of_the_cloud() {
        let minute = Duration::from_mins(1);
        let mut brake = brake(2);
        // The mirror was away for long.
        for now in [minute, minute + REMOVAL_WINDOW] {
            assert!(!brake.holds(&ids(0..100), 100, &mirror(2, "one")));
            brake.release(&ids(0..100), 100, &mirror(2, "one"), now);
        }
        assert!(
            brake.holds(&ids(1..2), 1, &mirror(1, "one")),
            "one of the cloud's is missing"
        );
        assert!(!brake.holds(&ids(0..2), 2, &mirror(2, "one")));
    }

    #[test]
    fn other_keys_for_all_users_are_a_removal_of_all() {
        // The mirror has stopped, and its last word is that all is well.
        let stale = mirror(10, "one");
        let mut brake = brake(10);
        assert!(brake.holds(&with(0..10, "intruder"), 10, &stale));
        // Nor one user after the other.
        let minute = Duration::from_mins(1);
        for changed in 1..=5 {
            let mut logins = (*ids(changed..10)).clone();
            logins.extend((*with(0..changed, "intruder")).clone());
            let logins = Arc::new(logins);
            assert!(!brake.holds(&logins, 10, &stale), "{changed}");
            brake.release(&logins, 10, &stale, minute);
        }
        let mut logins = (*ids(6..10)).clone();
        logins.extend((*with(0..6, "intruder")).clone());
        assert!(brake.holds(&logins, 10, &stale));
        assert!(!brake.holds(&logins, 10, &mirror(10, "two")), "the cloud says so");
        // A second key takes none away.
        let mut logins = (*ids(0..10)).clone();
        for keys in logins.values_mut() {
            keys.push(key("second"));
        }
        assert!(!brake.holds(&logins, 10, &stale));
    }

    #[test]
    fn a_mirror_that_does_not_know_users_is_not_synced() {
        let mut sync: CloudSync = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "cloud"}, "spec": {},
            "status": {
                "kinds": [{"kind": "User", "objects": 3, "revision": "abc", "lastSuccess": "2026-01-01T00:00:00Z"}],
                "conditions": [{"type": "Synced", "status": "True", "reason": "Applied", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            }
        }))
        .unwrap();
        let found = MirrorState::of(Some(&sync), false);
        assert_eq!(
            (found.is_synced, found.objects, found.revision.as_str()),
            (true, 3, "abc")
        );
        sync.status.as_mut().unwrap().kinds.clear();
        assert!(!MirrorState::of(Some(&sync), false).is_synced);
        assert_eq!(MirrorState::of(None, false), MirrorState::default());
    }
}
