//! The Lease as a record: what its fields mean, and what to write. Pure.
//!
//! Source: client-go's `tools/leaderelection` and its `resourcelock.LeaseLock`.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

/// The three times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    lease_duration: Duration,
    renew_deadline: Duration,
    retry_period: Duration,
}

/// The times of an election do not fit together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the lease duration must be longer than the renew deadline, which must be longer than 1.2 retry periods, \
     which must be longer than zero"
)]
pub struct InvalidTiming;

impl Timing {
    /// `lease_duration` (whole seconds): how long candidates wait after the last change that they saw. `renew_deadline`: how
    /// long a leader goes on without a renewal. `retry_period`: the time between renewals, and between reads of a standby.
    ///
    /// # Errors
    /// When they violate client-go's rules.
    pub fn new(
        lease_duration: Duration,
        renew_deadline: Duration,
        retry_period: Duration,
    ) -> Result<Self, InvalidTiming> {
        let fits = Duration::from_secs(lease_duration.as_secs()) > renew_deadline
            && renew_deadline > retry_period.mul_f64(1.2)
            && !retry_period.is_zero();
        fits.then_some(Self {
            lease_duration,
            renew_deadline,
            retry_period,
        })
        .ok_or(InvalidTiming)
    }

    /// How long candidates wait after the last change that they saw.
    #[must_use]
    pub fn lease_duration(&self) -> Duration {
        self.lease_duration
    }

    /// How long a leader goes on without a renewal.
    #[must_use]
    pub fn renew_deadline(&self) -> Duration {
        self.renew_deadline
    }

    /// The time between renewals, and between reads of a standby.
    #[must_use]
    pub fn retry_period(&self) -> Duration {
        self.retry_period
    }

    fn lease_seconds(&self) -> i32 {
        i32::try_from(self.lease_duration.as_secs()).unwrap_or(i32::MAX)
    }
}

impl Default for Timing {
    /// 15 s, 10 s and 2 s, as every component of Kubernetes and as kops-controller.
    fn default() -> Self {
        Self {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
        }
    }
}

/// The holder of the Lease; `None` when it was released.
pub(super) fn holder(lease: &Lease) -> Option<&str> {
    lease
        .spec
        .as_ref()?
        .holder_identity
        .as_deref()
        .filter(|holder| !holder.is_empty())
}

/// A Lease that does not exist yet, held by `identity`.
pub(super) fn created(namespace: &str, name: &str, identity: &str, now: Timestamp, timing: Timing) -> Lease {
    let metadata = ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(namespace.to_owned()),
        ..ObjectMeta::default()
    };
    let spec = LeaseSpec {
        lease_transitions: Some(0),
        ..held(LeaseSpec::default(), identity, now, timing)
    };
    Lease {
        metadata,
        spec: Some(LeaseSpec {
            acquire_time: Some(MicroTime(now)),
            ..spec
        }),
    }
}

/// `lease`, held by `identity` and renewed `now`. A change of the holder counts as a transition.
pub(super) fn claimed(lease: &Lease, identity: &str, now: Timestamp, timing: Timing) -> Lease {
    let ours = holder(lease) == Some(identity);
    let mut spec = held(lease.spec.clone().unwrap_or_default(), identity, now, timing);
    if !ours {
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
    }
    Lease {
        metadata: lease.metadata.clone(),
        spec: Some(spec),
    }
}

/// `lease`, released: no candidate has to wait for it to expire.
pub(super) fn released(lease: &Lease, now: Timestamp) -> Lease {
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..lease.spec.clone().unwrap_or_default()
    };
    Lease {
        metadata: lease.metadata.clone(),
        spec: Some(spec),
    }
}

fn held(spec: LeaseSpec, identity: &str, now: Timestamp, timing: Timing) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(identity.to_owned()),
        lease_duration_seconds: Some(timing.lease_seconds()),
        renew_time: Some(MicroTime(now)),
        ..spec
    }
}

/// The Lease as this replica saw it last.
#[derive(Debug)]
pub(super) struct Observed {
    lease: Option<Lease>,
    /// Monotonic time at which this replica saw it change: the clocks of other machines are never read.
    changed: Duration,
}

/// When a standby may claim the Lease.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Claimable {
    /// It is missing, released or ours, or it has not changed for its holder's lease duration.
    Now,
    /// At this monotonic time, unless it changes.
    At(Duration),
}

impl Observed {
    pub(super) fn new(lease: Option<Lease>, now: Duration) -> Self {
        Self { lease, changed: now }
    }

    pub(super) fn lease(&self) -> Option<&Lease> {
        self.lease.as_ref()
    }

    /// Stores what was read or received at `now`.
    pub(super) fn see(&mut self, lease: Option<Lease>, now: Duration) {
        let spec = |lease: &Option<Lease>| lease.as_ref().map(|lease| lease.spec.clone());
        if spec(&self.lease) != spec(&lease) {
            self.changed = now;
        }
        // Stored even when only its resourceVersion is new: the next write names it.
        self.lease = lease;
    }

    pub(super) fn claimable(&self, identity: &str, now: Duration, timing: Timing) -> Claimable {
        let Some(lease) = self
            .lease
            .as_ref()
            .filter(|lease| holder(lease).is_some_and(|other| other != identity))
        else {
            return Claimable::Now;
        };
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let lasts = seconds.map_or(timing.lease_duration, |seconds| {
            Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
        });
        let until = self.changed.saturating_add(lasts);
        if until <= now {
            Claimable::Now
        } else {
            Claimable::At(until)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const SECOND: Duration = Duration::from_secs(1);
    const NOW: Duration = Duration::from_secs(1000);

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn lease(holder: &str, renewed: &str, seconds: i32) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": "l", "namespace": "n", "resourceVersion": "5"},
            "spec": {
                "holderIdentity": holder, "leaseDurationSeconds": seconds, "leaseTransitions": 3,
                "acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": renewed,
            },
        }))
        .unwrap()
    }

    const RENEWED: &str = "2026-01-01T00:00:07.000000Z";

    #[test]
    fn the_times_leave_room_in_between() {
        assert_eq!(Timing::new(15 * SECOND, 10 * SECOND, 2 * SECOND), Ok(Timing::default()));
        assert_eq!(Timing::new(10 * SECOND, 10 * SECOND, 2 * SECOND), Err(InvalidTiming));
        assert_eq!(Timing::new(15 * SECOND, 2 * SECOND, 2 * SECOND), Err(InvalidTiming));
        assert_eq!(
            Timing::new(15 * SECOND, 10 * SECOND, Duration::ZERO),
            Err(InvalidTiming)
        );
        assert_eq!(
            Timing::new(Duration::from_millis(1900), Duration::from_millis(1500), SECOND),
            Err(InvalidTiming)
        );
    }

    #[test]
    fn writes_what_client_go_writes() {
        let now = time("2026-01-02T03:04:05.678Z");
        let fields = |lease: Lease| serde_json::to_value(lease.spec).unwrap();
        assert_eq!(
            fields(created("n", "l", "us", now, Timing::default())),
            json!({
                "holderIdentity": "us", "leaseDurationSeconds": 15, "leaseTransitions": 0,
                "acquireTime": "2026-01-02T03:04:05.678000Z", "renewTime": "2026-01-02T03:04:05.678000Z",
            }),
        );
        assert_eq!(
            fields(claimed(&lease("them", RENEWED, 15), "us", now, Timing::default())),
            json!({
                "holderIdentity": "us", "leaseDurationSeconds": 15, "leaseTransitions": 4,
                "acquireTime": "2026-01-02T03:04:05.678000Z", "renewTime": "2026-01-02T03:04:05.678000Z",
            }),
        );
        assert_eq!(
            fields(claimed(&lease("us", RENEWED, 15), "us", now, Timing::default())),
            json!({
                "holderIdentity": "us", "leaseDurationSeconds": 15, "leaseTransitions": 3,
                "acquireTime": "2026-01-01T00:00:00.000001Z", "renewTime": "2026-01-02T03:04:05.678000Z",
            }),
        );
        assert_eq!(
            fields(released(&lease("us", RENEWED, 15), now)),
            json!({
                "holderIdentity": "", "leaseDurationSeconds": 1, "leaseTransitions": 3,
                "acquireTime": "2026-01-02T03:04:05.678000Z", "renewTime": "2026-01-02T03:04:05.678000Z",
            }),
        );
    }

    #[test]
    fn a_write_names_the_version_that_it_replaces() {
        let lease = lease("them", RENEWED, 15);
        let now = time(RENEWED);
        assert_eq!(
            claimed(&lease, "us", now, Timing::default())
                .metadata
                .resource_version
                .as_deref(),
            Some("5")
        );
        assert_eq!(released(&lease, now).metadata.resource_version.as_deref(), Some("5"));
    }

    #[test]
    fn a_held_lease_is_free_when_it_has_not_changed_for_as_long_as_it_says() {
        let mut observed = Observed::new(None, NOW);
        let claimable = |observed: &Observed, now| observed.claimable("us", now, Timing::default());
        assert_eq!(claimable(&observed, NOW), Claimable::Now);
        observed.see(Some(lease("them", RENEWED, 40)), NOW);
        assert_eq!(claimable(&observed, NOW), Claimable::At(NOW + 40 * SECOND));
        // Seen again, unchanged: nothing moves.
        observed.see(Some(lease("them", RENEWED, 40)), NOW + 39 * SECOND);
        assert_eq!(
            claimable(&observed, NOW + 39 * SECOND),
            Claimable::At(NOW + 40 * SECOND)
        );
        assert_eq!(claimable(&observed, NOW + 40 * SECOND), Claimable::Now);
        // A renewal, whatever its time says, counts from when it was seen.
        observed.see(
            Some(lease("them", "1999-01-01T00:00:00.000000Z", 40)),
            NOW + 39 * SECOND,
        );
        assert_eq!(
            claimable(&observed, NOW + 41 * SECOND),
            Claimable::At(NOW + 79 * SECOND)
        );
    }

    #[test]
    fn what_is_nobodys_or_ours_is_free() {
        for holder in ["", "us"] {
            let observed = Observed::new(Some(lease(holder, RENEWED, 15)), NOW);
            assert_eq!(observed.claimable("us", NOW, Timing::default()), Claimable::Now);
        }
        let observed = Observed::new(Some(Lease::default()), NOW);
        assert_eq!(observed.claimable("us", NOW, Timing::default()), Claimable::Now);
    }

    #[test]
    fn a_lease_without_a_duration_lasts_as_long_as_ours() {
        let mut theirs = lease("them", RENEWED, 15);
        theirs.spec.as_mut().unwrap().lease_duration_seconds = None;
        let observed = Observed::new(Some(theirs), NOW);
        assert_eq!(
            observed.claimable("us", NOW, Timing::default()),
            Claimable::At(NOW + 15 * SECOND)
        );
    }
}
