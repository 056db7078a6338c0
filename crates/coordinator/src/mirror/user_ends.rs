//! User end controller: publishes an Event on a User when its access, or one of its SSH keys, has ended.
//!
//! It writes nothing: each node removes keys by its own clock. The Event is for people, so a minute late is soon
//! enough, and what ended long before the process started is not reported again.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Resource as _;
use tidewaiter_api::containership::{User, UserSpec};
use tidewaiter_api::values::{EndTime, printable};
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, Controller, Events, Next, Notice, Pass, Queue, Reconciler, SharedClock, WriteError};

/// An end is reported for this long.
const REPORT_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// The longest time between two looks at the clock, which somebody may set.
const MAX_WAIT: Duration = Duration::from_mins(1);

struct UserEndController {
    users: Cache<User>,
    events: Events,
    clock: SharedClock,
}

/// Starts it.
pub(super) fn start(users: &Cache<User>, role: &mut Role<'_>) {
    let context = &role.context;
    let queue = Queue::new();
    users.notify(queue.same_name());
    let reconciler = UserEndController {
        users: users.clone(),
        events: context.events.of(UserEndController::NAME),
        clock: Arc::clone(&context.kit.clock),
    };
    Controller::new(reconciler, queue).start(context.clone(), role.tasks);
}

impl Reconciler for UserEndController {
    const NAME: &'static str = "user-end";
    /// Never: it sends no request.
    type Error = WriteError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, WriteError> {
        let Some(user) = self.users.get(pass.key()) else {
            return Ok(Next::UntilChanged);
        };
        let (now, ends) = (self.clock.now(), ends(&user.spec));
        for (_, note) in ends.iter().filter(|(end, _)| is_recent(*end, now)) {
            let notice = Notice::normal("AccessEnded", "End", note.clone());
            self.events.publish(&user.object_ref(&()), notice);
        }
        Ok(next(ends.iter().map(|(end, _)| *end), now))
    }
}

/// The ends of a user and of its keys, each with its note.
fn ends(user: &UserSpec) -> Vec<(EndTime, String)> {
    let of_user = EndTime::of_field(&user.expires_at);
    let of_user = of_user.map(|end| {
        (
            end,
            format!("The access of the user ended at {end}: nodes refuse its keys."),
        )
    });
    let of_keys = user.ssh_keys.iter().filter_map(|key| {
        let (end, name) = (EndTime::of_field(&key.expires_at)?, printable(&key.name));
        let note = format!(
            "The SSH key {name} ({}) ended at {end}: nodes refuse it.",
            key.fingerprint
        );
        Some((end, note))
    });
    of_user.into_iter().chain(of_keys).collect()
}

fn is_recent(end: EndTime, now: Timestamp) -> bool {
    end.has_passed(now) && now.duration_since(end.get()) <= REPORT_WINDOW
}

/// The next look: at the next end, and before it at intervals.
fn next(ends: impl Iterator<Item = EndTime>, now: Timestamp) -> Next {
    let ahead = ends.filter(|end| !end.has_passed(now)).min();
    ahead.map_or(Next::UntilChanged, |end| {
        let left = Duration::try_from(end.get().duration_since(now)).unwrap_or_default();
        Next::After(left.min(MAX_WAIT))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_is_reported_with_its_second_and_for_a_while() {
        let spec = json!({"id": "u", "expires_at": "2027-01-31T18:00:00Z", "ssh_keys": [
            {"name": "laptop", "fingerprint": "SHA256:x", "key": "ssh-ed25519 AAAA", "expires_at": "2027-01-31T17:00:00Z"},
            {"name": "old", "key": "ssh-ed25519 BBBB", "expires_at": "never"},
        ]});
        let ends = ends(&serde_json::from_value(spec).unwrap());
        let at = |time: &str| {
            let now: Timestamp = format!("2027-01-31T{time}Z").parse().unwrap();
            let notes = ends.iter().filter(|(end, _)| is_recent(*end, now));
            let notes: Vec<&str> = notes.map(|(_, note)| note.split(' ').nth(1).unwrap()).collect();
            (notes.join(" "), next(ends.iter().map(|(end, _)| *end), now))
        };
        let after = |seconds| Next::After(Duration::from_secs(seconds));
        for (time, notes, looks) in [
            ("12:00:00", "", after(60)),
            ("16:59:58", "", after(2)),
            ("17:00:00", "SSH", after(60)),
            ("17:10:01", "", after(60)),
            ("18:00:00", "access", Next::UntilChanged),
            ("18:10:01", "", Next::UntilChanged),
        ] {
            assert_eq!(at(time), (notes.to_owned(), looks), "{time}");
        }
    }
}
