//! The Lease as a record: what its fields mean, and what to write. Pure.
//!
//! Source: client-go's `tools/leaderelection` and its `resourcelock.LeaseLock`. Two annotations are our own: with one,
//! a holder that is not fit to lead asks for a successor, and with the other a replica that is fit offers to be it.
//! Both are removed when the holder changes or is fit again. A replica that knows neither keeps them as they are.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

/// The identity of a holder that is not fit to lead, as long as it asks for a successor.
const UNFIT_HOLDER: &str = "tidewaiter.dev/unfit-holder";
/// The identity of a replica that is fit to succeed that holder.
const SUCCESSOR: &str = "tidewaiter.dev/successor";

/// The longest time for which a Lease is held without a change, whatever it says: anyone who may write it could stop
/// every replica for 68 years with one edit. No component of Kubernetes, and no release of Tidewaiter, has a lease
/// duration that is as long.
const MAX_LEASE_DURATION: Duration = Duration::from_mins(1);

/// The three times of an election. Each is longer than the next one, as in client-go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The time that candidates wait after the last change that they saw; whole seconds.
    pub lease_duration: Duration,
    /// The time that a leader goes on without a renewal.
    pub renew_deadline: Duration,
    /// The time between renewals, and between reads of a standby.
    pub retry_period: Duration,
}

impl Timing {
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
        acquire_time: Some(MicroTime(now)),
        ..held(LeaseSpec::default(), identity, now, timing)
    };
    Lease {
        metadata,
        spec: Some(spec),
    }
}

/// `lease`, held by `identity` and renewed `now`. A change of the holder counts as a transition.
pub(super) fn claimed(lease: &Lease, identity: &str, now: Timestamp, timing: Timing) -> Lease {
    let mut lease = lease.clone();
    let ours = holder(&lease) == Some(identity);
    unmark(&mut lease.metadata);
    let mut spec = held(lease.spec.clone().unwrap_or_default(), identity, now, timing);
    if !ours {
        spec.acquire_time = Some(MicroTime(now));
        spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default().saturating_add(1));
    }
    Lease {
        spec: Some(spec),
        ..lease
    }
}

/// The same, with the request of `identity` for a successor. An offer that `lease` contains stays.
pub(super) fn claimed_unfit(lease: &Lease, identity: &str, now: Timestamp, timing: Timing) -> Lease {
    let offer = annotation(lease, SUCCESSOR).map(|offer| (SUCCESSOR.to_owned(), offer.to_owned()));
    let mut lease = claimed(lease, identity, now, timing);
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(UNFIT_HOLDER.to_owned(), identity.to_owned());
    annotations.extend(offer);
    lease
}

/// `lease`, with the offer of `identity` to succeed its holder; None if the holder does not ask for a successor, or has
/// an offer.
pub(super) fn offered(lease: &Lease, identity: &str) -> Option<Lease> {
    let holder = holder(lease).filter(|holder| *holder != identity)?;
    if annotation(lease, UNFIT_HOLDER) != Some(holder) || annotation(lease, SUCCESSOR).is_some() {
        return None;
    }
    let mut lease = lease.clone();
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(SUCCESSOR.to_owned(), identity.to_owned());
    Some(lease)
}

/// The replica that offers to succeed the holder.
pub(super) fn successor(lease: &Lease) -> Option<&str> {
    annotation(lease, SUCCESSOR)
}

fn annotation<'a>(lease: &'a Lease, key: &str) -> Option<&'a str> {
    let value = lease.metadata.annotations.as_ref()?.get(key)?;
    Some(value.as_str()).filter(|value| !value.is_empty())
}

fn unmark(metadata: &mut ObjectMeta) {
    let annotations: Option<BTreeMap<_, _>> = metadata.annotations.take().map(|mut annotations| {
        annotations.retain(|key, _| key != UNFIT_HOLDER && key != SUCCESSOR);
        annotations
    });
    metadata.annotations = annotations.filter(|annotations| !annotations.is_empty());
}

/// `lease`, released: no candidate has to wait for it to expire.
pub(super) fn released(lease: &Lease, now: Timestamp) -> Lease {
    let mut lease = lease.clone();
    unmark(&mut lease.metadata);
    let spec = LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..lease.spec.unwrap_or_default()
    };
    Lease {
        metadata: lease.metadata,
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
    /// It is ours already.
    Ours,
    /// Since this monotonic time it is missing or released, or has not changed for its holder's lease duration.
    Since(Duration),
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
        let Some(lease) = self.lease.as_ref().filter(|lease| holder(lease).is_some()) else {
            return Claimable::Since(self.changed);
        };
        if holder(lease) == Some(identity) {
            return Claimable::Ours;
        }
        let seconds = lease.spec.as_ref().and_then(|spec| spec.lease_duration_seconds);
        let lasts = seconds.map_or(timing.lease_duration, |seconds| {
            let says = Duration::from_secs(u64::try_from(seconds).unwrap_or_default());
            says.min(MAX_LEASE_DURATION.max(timing.lease_duration))
        });
        let until = self.changed.saturating_add(lasts);
        if until <= now {
            Claimable::Since(until)
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
        assert_eq!(claimable(&observed, NOW + SECOND), Claimable::Since(NOW));
        observed.see(Some(lease("them", RENEWED, 40)), NOW);
        assert_eq!(claimable(&observed, NOW), Claimable::At(NOW + 40 * SECOND));
        // Seen again, unchanged: nothing moves.
        observed.see(Some(lease("them", RENEWED, 40)), NOW + 39 * SECOND);
        assert_eq!(
            claimable(&observed, NOW + 39 * SECOND),
            Claimable::At(NOW + 40 * SECOND)
        );
        for later in [40, 50] {
            let since = Claimable::Since(NOW + 40 * SECOND);
            assert_eq!(claimable(&observed, NOW + later * SECOND), since);
        }
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
    fn no_lease_is_held_for_years() {
        let mut evil = lease("evil", "2099-01-01T00:00:00.000000Z", i32::MAX);
        evil.spec.as_mut().unwrap().acquire_time = Some(MicroTime(time("2099-01-01T00:00:00Z")));
        let observed = Observed::new(Some(evil), NOW);
        let claimable = |now, timing| observed.claimable("us", now, timing);
        let until = NOW + MAX_LEASE_DURATION;
        assert_eq!(claimable(NOW, Timing::default()), Claimable::At(until));
        assert_eq!(claimable(until, Timing::default()), Claimable::Since(until));
        // Unless our own is longer.
        let slow = Timing {
            lease_duration: 90 * SECOND,
            ..Timing::default()
        };
        assert_eq!(claimable(NOW, slow), Claimable::At(NOW + 90 * SECOND));
    }

    #[test]
    fn what_is_nobodys_or_ours_is_free() {
        for (lease, expected) in [
            (lease("", RENEWED, 15), Claimable::Since(NOW)),
            (Lease::default(), Claimable::Since(NOW)),
            (lease("us", RENEWED, 15), Claimable::Ours),
        ] {
            let observed = Observed::new(Some(lease), NOW);
            assert_eq!(observed.claimable("us", NOW + SECOND, Timing::default()), expected);
        }
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

    #[test]
    fn an_unfit_holder_gets_one_offer_which_ends_with_its_request() {
        let now = time(RENEWED);
        let timing = Timing::default();
        let ready = lease("them", RENEWED, 15);
        assert_eq!(offered(&ready, "us"), None, "it does not ask");
        let asks = claimed_unfit(&ready, "them", now, timing);
        assert_eq!((successor(&asks), asks.spec.clone()), (None, ready.spec.clone()));
        assert_eq!(offered(&asks, "them"), None, "it asks others");
        let offer = offered(&asks, "us").unwrap();
        assert_eq!((successor(&offer), &offer.spec), (Some("us"), &asks.spec));
        assert_eq!(offered(&offer, "another"), None, "it has one");
        let renewed = claimed_unfit(&offer, "them", now, timing);
        assert_eq!(successor(&renewed), Some("us"));
        for next in [
            claimed(&renewed, "them", now, timing),
            claimed(&renewed, "us", now, timing),
            released(&renewed, now),
        ] {
            assert_eq!(next.metadata, ready.metadata);
            assert_eq!((successor(&next), offered(&next, "another")), (None, None));
        }
        let mut old = renewed;
        old.spec.as_mut().unwrap().holder_identity = Some("another".to_owned());
        assert_eq!(offered(&old, "us"), None, "another holder asked");
    }

    #[test]
    fn the_annotations_of_others_stay() {
        let mut lease = lease("us", RENEWED, 15);
        let team = BTreeMap::from([("team".to_owned(), "a".to_owned())]);
        lease.metadata.annotations = Some(team.clone());
        let now = time(RENEWED);
        let asks = claimed_unfit(&lease, "us", now, Timing::default());
        assert_eq!(asks.metadata.annotations.as_ref().map(BTreeMap::len), Some(2));
        let ready = claimed(&asks, "us", now, Timing::default());
        assert_eq!(ready.metadata.annotations, Some(team));
    }
}
