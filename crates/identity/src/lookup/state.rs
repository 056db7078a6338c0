//! The queries that wait for a call, the cached answers, and the claims that are tried again together: those that the
//! cloud has not answered, and those whose instance it does not list.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Bound::{Excluded, Unbounded};
use std::sync::Arc;
use std::time::Duration;

use tidewaiter_api::{NodeName, NodeUid, ProviderId};
use tidewaiter_kit::backoff::jittered;
use tidewaiter_kit::{Backoff, Packed, Packer};
use tokio::sync::oneshot;

use crate::identifier::{Claim, Identity};
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

/// The queries and answers of a lookup.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) waiting: VecDeque<Waiter>,
    pub(super) cached: AnswerCache,
    pub(super) parked: Parked,
    pub(super) unlisted: Parked,
    /// The call in flight for each Node. [`State::forget`] removes a Node, so that its answer is not cached.
    pub(super) in_flight: HashMap<NodeUid, u64>,
    pub(super) calls: u64,
    /// True if the cloud has answered since the start.
    pub(super) answered: bool,
    pub(super) closed: bool,
}

/// A query that waits for a call.
#[derive(Debug)]
pub(super) struct Waiter {
    pub(super) claim: Claim,
    pub(super) reply: Reply,
}

pub(super) type Reply = oneshot::Sender<Result<CachedAnswer, Refusal>>;

impl State {
    /// Returns an answer that needs no call: the cached answer, or the refusal of a parked claim.
    pub(super) fn known(&mut self, claim: &Claim, now: Duration) -> Option<Result<CachedAnswer, Refusal>> {
        let cached = self.cached.get(claim, now).map(Ok);
        cached
            .or_else(|| self.parked.refusal(claim).map(Err))
            .or_else(|| self.unlisted.refusal(claim).map(Err))
    }

    /// The monotonic time of the next try; `None` while nothing is parked.
    pub(super) fn next_try(&self) -> Option<Duration> {
        self.parked.due().into_iter().chain(self.unlisted.due()).min()
    }

    /// Drops whatever is known of this Node.
    pub(super) fn forget(&mut self, uid: &NodeUid) {
        self.cached.forget(uid);
        self.parked.forget(uid);
        self.unlisted.forget(uid);
        self.in_flight.remove(uid);
    }

    /// Drops all queries, now and later.
    pub(super) fn close(&mut self) {
        self.closed = true;
        self.waiting.clear();
        self.parked.release();
        self.unlisted.release();
    }
}

/// The cloud's answer, and the monotonic time at which it expires.
#[derive(Clone, Debug)]
pub(super) struct CachedAnswer {
    pub(super) identity: Arc<Identity>,
    pub(super) until: Duration,
}

/// The cached answers, one per Node.
#[derive(Debug, Default)]
pub(super) struct AnswerCache {
    answers: HashMap<NodeUid, PackedAnswer>,
    packer: Packer<(ProviderId, Identity)>,
    prune_at: Duration,
}

#[derive(Debug)]
struct PackedAnswer {
    /// The queried providerID, and the identity.
    packed: Packed,
    obtained: Duration,
    until: Duration,
}

impl AnswerCache {
    /// The cached answer for this Node with this providerID, unless it has expired.
    pub(super) fn get(&self, claim: &Claim, now: Duration) -> Option<CachedAnswer> {
        let answer = self.answers.get(&claim.uid)?;
        if answer.until <= now {
            return None;
        }
        let (provider_id, identity) = self.packer.unpack(&answer.packed);
        (provider_id == claim.provider_id).then(|| CachedAnswer {
            identity: Arc::new(identity),
            until: answer.until,
        })
    }

    pub(super) fn insert(&mut self, claim: &Claim, cached: &CachedAnswer, now: Duration) {
        let content = (claim.provider_id.clone(), (*cached.identity).clone());
        let answer = PackedAnswer {
            packed: self.packer.pack(&content),
            obtained: now,
            until: cached.until,
        };
        self.answers.insert(claim.uid.clone(), answer);
    }

    /// Makes the answer of this Node expire when it has this age, if it does not expire before.
    pub(super) fn expire_at_age(&mut self, uid: &NodeUid, age: Duration) {
        if let Some(answer) = self.answers.get_mut(uid) {
            answer.until = answer.until.min(answer.obtained + age);
        }
    }

    pub(super) fn forget(&mut self, uid: &NodeUid) {
        self.answers.remove(uid);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.answers.len()
    }

    /// Drops expired answers from time to time. This also covers Nodes that were deleted while their query was in
    /// flight, which [`AnswerCache::forget`] misses.
    pub(super) fn prune(&mut self, now: Duration, expiry: Duration) {
        if now >= self.prune_at {
            self.answers.retain(|_, answer| answer.until > now);
            self.prune_at = now + expiry / 4;
        }
    }
}

/// The expiry of an answer obtained now, for a random `draw` in [0, 1]: in the last quarter of `expiry`, at one of
/// sixty moments that all answers share, so that those of one moment are renewed in one call.
pub(super) fn expires(now: Duration, expiry: Duration, draw: f64) -> Duration {
    let exact = now + expiry.saturating_sub((expiry / 4).mul_f64(draw.clamp(0.0, 1.0)));
    let mark = (expiry / 60).as_nanos().max(1);
    let since_mark = u64::try_from(exact.as_nanos() % mark).unwrap_or_default();
    exact.saturating_sub(Duration::from_nanos(since_mark))
}

/// Claims that are tried again together: one call tries some of them, at a pace that does not depend on their number.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_expire_in_the_last_quarter_on_common_marks() {
        let (hour, now) = (Duration::from_hours(1), Duration::from_secs(10_007));
        let mut marks = std::collections::BTreeSet::new();
        for step in 0..=100 {
            let until = expires(now, hour, f64::from(step) / 100.0);
            assert!(until > now + hour * 7 / 10 && until <= now + hour, "{until:?}");
            marks.insert(until);
        }
        assert!(marks.len() <= 17, "{} marks", marks.len());
        assert!(marks.iter().all(|mark| mark.as_secs() % 60 == 0), "{marks:?}");
    }

    #[test]
    fn the_shortest_expiry_does_no_harm() {
        assert_eq!(
            expires(Duration::from_secs(5), Duration::ZERO, 0.5),
            Duration::from_secs(5)
        );
    }
}
