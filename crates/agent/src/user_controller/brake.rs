//! Decides whether many users may lose their access at the same time. Pure.
//!
//! One user that is removed loses access at once. Nobody left, or more than half of more than five users gone, may be a mistake: `kubectl
//! delete users --all`, a definition that was deleted, a schema that drops fields, an etcd that was restored. Such a removal waits until
//! the mirror of the cloud confirms it: `CloudSync` is `Synced`, counts as many Users as we see, and names another list of the cloud than
//! when the users were last complete. A termination of the coordinator, which removes all Users, confirms it, too.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_api::cloud_sync::SYNCED;
use tidewaiter_api::{CloudSync, ConditionStatus};
use uuid::Uuid;

/// A list with this many users or fewer is only guarded against becoming empty, as in the mirror.
const FEW: usize = 5;

/// Removals that are this far apart are not taken together.
const TOGETHER: Duration = Duration::from_mins(10);

/// What the mirror says of the Users.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct MirrorState {
    /// Whether the last response of the cloud was applied.
    pub(crate) is_synced: bool,
    /// The Users that it manages in the cluster.
    pub(crate) objects: usize,
    /// Which list of the cloud it applied; empty before the first one.
    pub(crate) revision: String,
    /// Whether it holds deletions itself.
    pub(crate) is_held: bool,
    /// When the cloud last answered, as of the last write.
    pub(crate) last_success: Option<Timestamp>,
    /// Whether everything that the coordinator manages is being removed.
    pub(crate) is_terminating: bool,
}

impl MirrorState {
    /// What `CloudSync` says, if it is there and knows Users.
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

/// What the brake compares with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Brake {
    /// Who could log in when the users were last complete.
    complete: BTreeSet<Uuid>,
    /// Which list of the cloud that was, if it is known.
    revision: Option<String>,
    /// When somebody's access was last changed; monotonic.
    changed: Duration,
    last: BTreeSet<Uuid>,
}

impl Brake {
    /// Compares with those that can log in when the agent starts.
    pub(crate) fn new(present: BTreeSet<Uuid>, now: Duration) -> Self {
        Self {
            last: present.clone(),
            complete: present,
            revision: None,
            changed: now,
        }
    }

    /// Whether the removal of those that are not in `wanted` waits. `users` is the number of Users in the cluster.
    pub(crate) fn holds(&self, wanted: &BTreeSet<Uuid>, users: usize, mirror: &MirrorState) -> bool {
        let gone = self.complete.difference(wanted).count();
        let is_empty = wanted.is_empty() && gone > 0;
        let is_most = self.complete.len() > FEW && gone * 2 > self.complete.len();
        (is_empty || is_most) && !self.confirms(users, mirror)
    }

    fn confirms(&self, users: usize, mirror: &MirrorState) -> bool {
        let is_other = self.revision.as_ref() != Some(&mirror.revision);
        mirror.is_terminating || (agrees(users, mirror) && is_other)
    }

    /// `applied` was applied, and nothing is held.
    pub(crate) fn release(&mut self, applied: BTreeSet<Uuid>, users: usize, mirror: &MirrorState, now: Duration) {
        if applied != self.last {
            self.changed = now;
            self.last.clone_from(&applied);
        }
        if agrees(users, mirror) {
            self.revision = Some(mirror.revision.clone());
            self.complete = applied;
        } else if now.saturating_sub(self.changed) >= TOGETHER {
            self.complete = applied;
        } else {
            self.complete.extend(applied);
        }
    }
}

/// Whether the mirror has applied its list, and all of it is what we see.
fn agrees(users: usize, mirror: &MirrorState) -> bool {
    mirror.is_synced && !mirror.is_held && !mirror.revision.is_empty() && users >= mirror.objects
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(numbers: std::ops::Range<u128>) -> BTreeSet<Uuid> {
        numbers.map(Uuid::from_u128).collect()
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
        let mut brake = Brake::new(BTreeSet::new(), Duration::ZERO);
        let users = usize::try_from(count).unwrap();
        brake.release(ids(0..count), users, &mirror(users, "one"), Duration::ZERO);
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
            brake.release(ids(0..left), users, &away, minute);
        }
        assert!(brake.holds(&ids(0..4), 4, &away));
        // Five are complete when they stay for long, or when the mirror confirms them.
        let mut later = brake.clone();
        later.release(ids(0..5), 5, &away, minute + TOGETHER);
        assert!(!later.holds(&ids(0..1), 1, &away));
        brake.release(ids(0..5), 5, &mirror(5, "two"), minute);
        assert!(!brake.holds(&ids(0..1), 1, &away));
    }

    #[test]
    fn an_agent_that_starts_compares_with_the_file() {
        let brake = Brake::new(ids(0..3), Duration::ZERO);
        assert!(brake.holds(&ids(0..0), 0, &MirrorState::default()));
        assert!(
            !brake.holds(&ids(0..0), 0, &mirror(0, "one")),
            "removed while it was away"
        );
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
