//! The claims that are tried again together: those that the cloud has not answered, and those whose instance it does
//! not list.
//!
//! One call tries some of them, at a pace that does not depend on how many they are.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::time::Duration;

use tidewaiter_api::{NodeName, NodeUid};
use tidewaiter_kit::Backoff;
use tidewaiter_kit::backoff::jittered;

use crate::claim::Claim;
use crate::refusal::Refusal;

/// The time between two tries. Its limit bounds both the calls during an outage, 17 in a minute, and the time to notice
/// its end.
const TRIES: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_millis(3_750));

/// The time between two tries of instances that are not listed yet: EC2 may take more than a minute. At most 16 calls
/// in a minute.
const UNLISTED: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_millis(4_500));

/// After this many tries, which take five minutes, an instance is not new any more.
const NEW: u32 = 68;

/// The time between two tries from then on.
const GONE: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(5));

/// The interval between two tries has grown to that of a new claim after this many.
const GROWN: u32 = 5;

/// The instance ids in one try: the limit of an EC2 filter, so that a try is one call.
pub(super) const UNLISTED_AT_ONCE: usize = 200;

/// So that replicas and clusters that were throttled together do not try together.
const JITTER: f64 = 0.1;

#[derive(Debug)]
pub(super) struct Parked {
    /// The time to the next try, by its number.
    interval: fn(u32) -> Duration,
    claims: BTreeMap<NodeUid, (Claim, Refusal)>,
    /// The last Node that was tried: the next try begins after it, so that each has its turn.
    last: Option<NodeUid>,
    tries: u32,
    /// Monotonic.
    not_before: Duration,
}

impl Default for Parked {
    /// Claims that the cloud has not answered.
    fn default() -> Self {
        Self::with(|tries| TRIES.ceiling(tries))
    }
}

impl Parked {
    /// Claims whose instance the cloud does not list yet.
    pub(super) fn unlisted() -> Self {
        Self::with(|tries| match tries.checked_sub(NEW) {
            None | Some(0) => UNLISTED.ceiling(tries),
            Some(tries) => GONE.ceiling(tries),
        })
    }

    fn with(interval: fn(u32) -> Duration) -> Self {
        Self {
            interval,
            claims: BTreeMap::new(),
            last: None,
            tries: 0,
            not_before: Duration::ZERO,
        }
    }

    pub(super) fn park(&mut self, claim: Claim, refusal: Refusal, now: Duration) {
        if self.claims.is_empty() {
            self.tries = 0;
            self.wait(now);
        }
        if self.claims.insert(claim.uid.clone(), (claim, refusal)).is_none() {
            self.hurry(now);
        }
    }

    /// The next try is as soon as for a claim that was parked a moment ago.
    pub(super) fn hurry(&mut self, now: Duration) {
        if self.tries > GROWN {
            self.tries = GROWN;
            self.not_before = self.not_before.min(now + (self.interval)(GROWN));
        }
    }

    /// Stores the refusal of another try.
    pub(super) fn refused_again(&mut self, claim: &Claim, refusal: Refusal) {
        if let Some((parked, before)) = self.claims.get_mut(&claim.uid)
            && parked.provider_id == claim.provider_id
        {
            *before = refusal;
        }
    }

    /// Returns the refusal of this claim if it is parked. The next try is that of the claim as it is now.
    pub(super) fn refusal(&mut self, claim: &Claim) -> Option<Refusal> {
        let (parked, refusal) = self.claims.get_mut(&claim.uid)?;
        if parked.provider_id != claim.provider_id {
            return None;
        }
        parked.clone_from(claim);
        Some(refusal.clone())
    }

    pub(super) fn first_refusal(&self) -> Option<Refusal> {
        self.claims.first_key_value().map(|(_, (_, refusal))| refusal.clone())
    }

    /// Returns whether a claim of this Node was parked.
    pub(super) fn forget(&mut self, uid: &NodeUid) -> bool {
        self.claims.remove(uid).is_some()
    }

    /// The monotonic time of the next try; `None` while nothing is parked.
    pub(super) fn due(&self) -> Option<Duration> {
        (!self.claims.is_empty()).then_some(self.not_before)
    }

    /// The claims of a try that starts now, if one is due: the next ones in turn.
    pub(super) fn take(&mut self, at_most: usize, now: Duration) -> Vec<Claim> {
        if self.due().is_none_or(|due| due > now) {
            return Vec::new();
        }
        let after = self.last.as_ref().map_or(Unbounded, Excluded);
        let rest = self.claims.range::<NodeUid, _>((after, Unbounded));
        let in_turn = rest.chain(&self.claims).take(at_most.min(self.claims.len()));
        let taken: Vec<Claim> = in_turn.map(|(_, (claim, _))| claim.clone()).collect();
        self.last = taken.last().map(|claim| claim.uid.clone());
        self.wait(now);
        taken
    }

    /// The first good answer means that the cloud is back: nothing is parked any more. Returns whose claims were.
    pub(super) fn release(&mut self) -> Vec<NodeName> {
        let claims = std::mem::take(&mut self.claims);
        claims.into_values().map(|(claim, _)| claim.node).collect()
    }

    fn wait(&mut self, now: Duration) {
        self.tries = self.tries.saturating_add(1);
        self.not_before = now + jittered((self.interval)(self.tries), JITTER);
    }
}
