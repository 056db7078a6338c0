//! The claims that the cloud has not answered: all of them wait for the same thing, so they are tried again together.
//!
//! One call tries some of them, at a pace that does not depend on how many they are. The first good answer means that the cloud is
//! back, and every parked Node may query again.

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

/// So that replicas and clusters that were throttled together do not try together.
const JITTER: f64 = 0.1;

#[derive(Debug, Default)]
pub(super) struct Parked {
    claims: BTreeMap<NodeUid, (Claim, Refusal)>,
    /// The last Node that was tried: the next try begins after it, so that each has its turn.
    last: Option<NodeUid>,
    tries: u32,
    /// Monotonic.
    not_before: Duration,
}

impl Parked {
    pub(super) fn park(&mut self, claim: Claim, refusal: Refusal, now: Duration) {
        if self.claims.is_empty() {
            self.tries = 0;
            self.wait(now);
        }
        self.claims.insert(claim.uid.clone(), (claim, refusal));
    }

    /// Stores the refusal of another try.
    pub(super) fn refused_again(&mut self, claim: &Claim, refusal: Refusal) {
        if let Some((parked, before)) = self.claims.get_mut(&claim.uid)
            && parked.provider_id == claim.provider_id
        {
            *before = refusal;
        }
    }

    /// Why this claim is parked, if it is.
    pub(super) fn refusal(&self, claim: &Claim) -> Option<Refusal> {
        let (parked, refusal) = self.claims.get(&claim.uid)?;
        (parked.provider_id == claim.provider_id).then(|| refusal.clone())
    }

    pub(super) fn first_refusal(&self) -> Option<Refusal> {
        self.claims.first_key_value().map(|(_, (_, refusal))| refusal.clone())
    }

    pub(super) fn forget(&mut self, uid: &NodeUid) {
        self.claims.remove(uid);
    }

    /// The monotonic time of the next try; `None` while nothing is parked.
    pub(super) fn due(&self) -> Option<Duration> {
        (!self.claims.is_empty()).then_some(self.not_before)
    }

    /// The claims of a try that starts now: the next ones in turn.
    pub(super) fn take(&mut self, at_most: usize, now: Duration) -> Vec<Claim> {
        let after = self.last.as_ref().map_or(Unbounded, Excluded);
        let rest = self.claims.range::<NodeUid, _>((after, Unbounded));
        let in_turn = rest.chain(&self.claims).take(at_most.min(self.claims.len()));
        let taken: Vec<Claim> = in_turn.map(|(_, (claim, _))| claim.clone()).collect();
        self.last = taken.last().map(|claim| claim.uid.clone());
        self.wait(now);
        taken
    }

    /// The cloud is back: nothing is parked any more. Returns whose claims were.
    pub(super) fn release(&mut self) -> Vec<NodeName> {
        let claims = std::mem::take(&mut self.claims);
        claims.into_values().map(|(claim, _)| claim.node).collect()
    }

    fn wait(&mut self, now: Duration) {
        self.tries = self.tries.saturating_add(1);
        self.not_before = now + jittered(TRIES.ceiling(self.tries), JITTER);
    }
}
