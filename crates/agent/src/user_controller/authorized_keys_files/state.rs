//! Decides which users may log in, from the Users, the mirror and what was accepted before. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_api::values::EndTime;

use super::super::brake::Brake;
use super::super::break_glass_users::BreakGlassUsers;
use super::super::expiry::{Expiry, expiry};
use super::super::grace::Grace;
use super::super::plan::LastWritten;
use super::super::wanted::{OVERHEAD, Wanted};
use super::desired::Pinned;
use super::displaced::Displaced;
use super::keys::InPlace;
use super::{Input, Outcome};
use crate::authorized_keys::{Kept, Logins};
use crate::host::{HostError, Prepared, Written};

/// The size in bytes of all keys in the file, with their commands, while removals are held: somebody may add and remove
/// many Users.
const MAX_HELD_BYTES: usize = 4 * 1024 * 1024;

/// The agent's state between passes.
#[derive(Debug, Default)]
pub(super) struct State {
    /// True after [`AuthorizedKeysFiles::stop`](super::AuthorizedKeysFiles::stop).
    pub(super) is_stopped: bool,
    /// True if what a killed agent left was removed.
    pub(super) is_swept: bool,
    /// The users that may log in. Before the first list of the Users, these are the users in the file, if the agent
    /// wrote it.
    pub(super) accepted: Option<Arc<Logins>>,
    /// The logins whose keys have not ended.
    unended: Arc<Logins>,
    /// The next end of a key.
    next_end: Option<EndTime>,
    pub(super) last_written: Option<LastWritten>,
    /// The files as the last pass left them, if it did not fail.
    pub(super) written: Vec<Written>,
    /// The files that are to be replaced when there is room, by name.
    pub(super) in_place: BTreeMap<&'static str, InPlace>,
    /// The reason why this pass overwrote a file in place.
    pub(super) unplaced: Option<HostError>,
    /// The files that were in the place of `authorized_keys`.
    pub(super) displaced: Displaced,
    /// The time when this pass began; monotonic.
    pub(super) now: Duration,
    pub(super) pinned: Pinned,
    pub(super) grace: Grace,
    pub(super) break_glass_users: BreakGlassUsers,
    /// That every foreign line stays.
    pub(super) all: Arc<Kept>,
    /// A copy of the file with this inode; None when it cannot be had, or was used.
    pub(super) copy: Option<Prepared>,
    pub(super) copied_inode: u64,
    pub(super) has_script: bool,
    pub(super) brake: Brake,
    /// The monotonic time at which [`super::RESTORES`] is full again.
    pub(super) restores_full_at: Option<Duration>,
    /// The time when the mirror last confirmed the users; monotonic.
    confirmed: Duration,
    last_success: Option<Timestamp>,
}

impl State {
    /// The initial state, at the monotonic time `now`.
    pub(super) fn new(now: Duration) -> Self {
        Self {
            confirmed: now,
            all: Arc::new(Kept::All),
            ..Self::default()
        }
    }

    /// The users that may log in now.
    pub(super) fn decide(&mut self, input: &Input, expire_after: Option<Duration>) -> Outcome {
        let mut is_held = false;
        if let Some(wanted) = &input.wanted {
            is_held = self.accept(wanted, input);
        }
        if input.mirror.last_success > self.last_success {
            self.last_success = input.mirror.last_success;
            self.confirmed = input.now;
        }
        let expiry = expiry(expire_after, self.confirmed, input.now);
        let unended = self.unended(input.time);
        let logins = match expiry {
            Expiry::Expired => unended.map(|_| Arc::default()),
            _ => unended,
        };
        Outcome {
            logins,
            refused: input
                .wanted
                .as_ref()
                .map(|wanted| wanted.refused.clone())
                .unwrap_or_default(),
            is_listed: input.wanted.is_some(),
            is_held,
            expiry,
            tampering: Vec::new(),
            foreign_lines: 0,
            foreign_keys: Vec::new(),
            foreign_until: None,
            break_glass: Vec::new(),
            break_glass_users: Vec::new(),
            break_glass_use: None,
            unplaced: None,
            wait: None,
        }
    }

    /// The users that may log in at `time`: the same in memory as long as no key ends.
    fn unended(&mut self, time: Timestamp) -> Option<Arc<Logins>> {
        let accepted = self.accepted.as_ref()?;
        let ends = || accepted.values().flatten().filter_map(|key| key.end);
        self.next_end = ends().filter(|end| !end.has_passed(time)).min();
        if !ends().any(|end| end.has_passed(time)) {
            return Some(Arc::clone(accepted));
        }
        let mut unended = Logins::clone(accepted);
        unended.retain(|_, keys| {
            keys.retain(|key| !key.has_ended(time));
            !keys.is_empty()
        });
        if *self.unended != unended {
            self.unended = Arc::new(unended);
        }
        Some(Arc::clone(&self.unended))
    }

    /// Returns true if a key has ended at `time` since the last pass.
    pub(super) fn is_end_due(&self, time: Timestamp) -> bool {
        self.next_end.is_some_and(|end| end.has_passed(time))
    }

    /// Accepts the keys of the Users. Returns true if removals are held; everything else is accepted.
    fn accept(&mut self, wanted: &Wanted, input: &Input) -> bool {
        if self.brake.holds(&wanted.logins, wanted.users, &input.mirror) {
            // A file that the agent did not write stays as it is meanwhile.
            if let Some(accepted) = &mut self.accepted {
                add(Arc::make_mut(accepted), &wanted.logins);
            }
            return true;
        }
        self.brake
            .release(&wanted.logins, wanted.users, &input.mirror, input.now);
        self.accepted = Some(Arc::clone(&wanted.logins));
        false
    }
}

/// Adds users and keys, up to [`MAX_HELD_BYTES`] bytes, and takes none away. Ends are those of `wanted`.
fn add(accepted: &mut Logins, wanted: &Logins) {
    let mut bytes: usize = accepted.values().flatten().map(|key| key.data.len() + OVERHEAD).sum();
    for (user, keys) in wanted {
        for key in keys {
            let mut known = accepted.get_mut(user).into_iter().flatten();
            if let Some(known) = known.find(|known| known.data == key.data) {
                known.end = key.end;
                continue;
            }
            let size = key.data.len() + OVERHEAD;
            if bytes + size <= MAX_HELD_BYTES {
                bytes += size;
                accepted.entry(*user).or_default().push(key.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::authorized_keys::LoginKey;

    fn logins(user: u128, keys: usize) -> Logins {
        let key = |number: usize| LoginKey {
            data: format!("{number}{}", "x".repeat(MAX_HELD_BYTES / 4 - 1 - OVERHEAD)),
            fingerprint: String::new(),
            end: None,
        };
        Logins::from([(Uuid::from_u128(user), (0..keys).map(key).collect())])
    }

    #[test]
    fn crowds_that_come_and_go_do_not_fill_the_file() {
        let mut accepted = logins(0, 1);
        for user in 1..10 {
            add(&mut accepted, &logins(user, 1));
        }
        let users: Vec<u128> = accepted.keys().map(Uuid::as_u128).collect();
        assert_eq!(
            users,
            [0, 1, 2, 3],
            "who is there stays, and who comes later does not fit"
        );
        add(&mut accepted, &logins(0, 1));
        assert_eq!(accepted[&Uuid::from_u128(0)].len(), 1, "the same key");
    }
}
