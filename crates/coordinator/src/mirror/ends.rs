//! End controllers: publish an Event on a User whose access, or one of whose SSH keys, has ended, and on a User or an
//! `AuthorizationRoleBinding` a day before its end.
//!
//! They write nothing: each node removes keys by its own clock, and the role binding controller reports the bindings
//! that have ended. The Events are for people, so a minute late is soon enough, and what was due long before the
//! process started is not reported again.

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::containership::{AuthorizationRoleBinding, User};
use tidewaiter_api::values::{EndTime, printable};
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{
    Cache, Cacheable, Controller, Events, Next, Notice, Pass, Queue, Reconciler, SharedClock, WriteError,
};

/// An end is reported for this long.
const REPORT_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// An end is announced this long before.
const ADVANCE: SignedDuration = SignedDuration::from_hours(24);

/// The longest time between two looks at the clock, which somebody may set.
const MAX_WAIT: Duration = Duration::from_mins(1);

/// An end of access.
pub(super) struct End {
    at: EndTime,
    /// The note a day before.
    ahead: String,
    /// The note once it has passed; `None` if another controller reports that.
    over: Option<String>,
}

/// A kind with ends of access.
pub(super) trait Ending: Cacheable {
    /// The name of the controller.
    const CONTROLLER: &'static str;

    fn ends(&self) -> Vec<End>;
}

struct EndController<R: Ending> {
    objects: Cache<R>,
    events: Events,
    clock: SharedClock,
}

/// Starts the controller of a kind.
pub(super) fn start<R: Ending>(objects: &Cache<R>, role: &mut Role<'_>) {
    let context = &role.context;
    let queue = Queue::new();
    objects.notify(queue.same_name());
    let reconciler = EndController {
        objects: objects.clone(),
        events: context.events.of(R::CONTROLLER),
        clock: Arc::clone(&context.kit.clock),
    };
    Controller::new(reconciler, queue).start(context.clone(), role.tasks);
}

impl<R: Ending> Reconciler for EndController<R> {
    const NAME: &'static str = R::CONTROLLER;
    /// Never: it sends no request.
    type Error = WriteError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, WriteError> {
        let Some(object) = self.objects.get(pass.key()) else {
            return Ok(Next::UntilChanged);
        };
        let (now, ends) = (self.clock.now(), object.ends());
        for notice in due(&ends, now) {
            self.events.publish(&object.object_ref(&()), notice);
        }
        Ok(next(&ends, now))
    }
}

impl Ending for User {
    const CONTROLLER: &'static str = "user-end";

    fn ends(&self) -> Vec<End> {
        let of_user = EndTime::of_field(&self.spec.expires_at);
        let of_user = of_user.map(|end| End {
            at: end,
            ahead: format!("The access of the user ends at {end}: then nodes refuse its keys."),
            over: Some(format!("The access of the user ended at {end}: nodes refuse its keys.")),
        });
        let of_keys = self.spec.ssh_keys.iter().filter_map(|key| {
            let (end, name) = (EndTime::of_field(&key.expires_at)?, printable(&key.name));
            let key = format!("The SSH key {name} ({})", key.fingerprint);
            Some(End {
                at: end,
                ahead: format!("{key} ends at {end}: then nodes refuse it."),
                over: Some(format!("{key} ended at {end}: nodes refuse it.")),
            })
        });
        of_user.into_iter().chain(of_keys).collect()
    }
}

impl Ending for AuthorizationRoleBinding {
    const CONTROLLER: &'static str = "role-binding-end";

    fn ends(&self) -> Vec<End> {
        let end = EndTime::of_field(&self.spec.expires_at);
        let end = end.map(|end| End {
            at: end,
            ahead: format!("The binding ends at {end}: then it gives nothing. Set a later expires_at in the cloud."),
            over: None,
        });
        end.into_iter().collect()
    }
}

impl End {
    /// The time of the Event before the end; a malformed end has none.
    fn announced(&self) -> Option<Timestamp> {
        self.at.get().checked_sub(ADVANCE).ok()
    }
}

/// The notices that are due at `now`.
fn due(ends: &[End], now: Timestamp) -> impl Iterator<Item = Notice> {
    let is_recent = move |at: Timestamp| at <= now && now.duration_since(at) <= REPORT_WINDOW;
    ends.iter().flat_map(move |end| {
        let is_ahead = end.announced().is_some_and(is_recent);
        let ahead = is_ahead.then(|| Notice::normal("AccessEndsSoon", "End", &*end.ahead));
        let over = end.over.as_deref().filter(|_| is_recent(end.at.get()));
        let over = over.map(|note| Notice::normal("AccessEnded", "End", note));
        ahead.into_iter().chain(over)
    })
}

/// The next look: at the next end or announcement, and before it at intervals.
fn next(ends: &[End], now: Timestamp) -> Next {
    let times = ends
        .iter()
        .flat_map(|end| end.announced().into_iter().chain([end.at.get()]));
    let ahead = times.filter(|at| *at > now).min();
    ahead.map_or(Next::UntilChanged, |at| {
        let left = Duration::try_from(at.duration_since(now)).unwrap_or_default();
        Next::After(left.min(MAX_WAIT))
    })
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;
    use serde_json::json;

    use super::*;

    #[test]
    fn an_end_is_reported_a_day_before_and_with_its_second_each_for_a_while() {
        let spec = json!({"id": "u", "expires_at": "2027-01-31T18:00:00Z", "ssh_keys": [
            {"name": "laptop", "fingerprint": "SHA256:x", "key": "ssh-ed25519 AAAA", "expires_at": "2027-01-31T17:00:00Z"},
            {"name": "old", "key": "ssh-ed25519 BBBB", "expires_at": "never"},
        ]});
        let user = User {
            metadata: ObjectMeta::default(),
            spec: serde_json::from_value(spec).unwrap(),
        };
        let ends = user.ends();
        let at = |time: &str| {
            let now: Timestamp = format!("2027-01-{time}Z").parse().unwrap();
            let due = due(&ends, now).map(|notice| {
                let about = notice.note.split(' ').nth(1).unwrap();
                format!("{} {about}", notice.reason)
            });
            (due.collect::<Vec<_>>().join(" "), next(&ends, now))
        };
        let after = |seconds| Next::After(Duration::from_secs(seconds));
        for (time, due, looks) in [
            ("30T12:00:00", "", after(60)),
            ("30T16:59:58", "", after(2)),
            ("30T17:00:00", "AccessEndsSoon SSH", after(60)),
            ("30T17:10:01", "", after(60)),
            ("30T18:00:00", "AccessEndsSoon access", after(60)),
            ("31T16:59:58", "", after(2)),
            ("31T17:00:00", "AccessEnded SSH", after(60)),
            ("31T17:10:01", "", after(60)),
            ("31T18:00:00", "AccessEnded access", Next::UntilChanged),
            ("31T18:10:01", "", Next::UntilChanged),
        ] {
            assert_eq!(at(time), (due.to_owned(), looks), "{time}");
        }
    }
}
