//! The cached answers, one per Node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidewaiter_api::{NodeUid, ProviderId};
use tidewaiter_kit::{Packed, Packer};

use crate::claim::Claim;
use crate::identity::Identity;

/// The cloud's answer, and the monotonic time at which it expires.
#[derive(Clone, Debug)]
pub(super) struct CachedAnswer {
    pub(super) identity: Arc<Identity>,
    pub(super) until: Duration,
}

#[derive(Debug, Default)]
pub(super) struct AnswerCache {
    of: HashMap<NodeUid, Answer>,
    packer: Packer<(ProviderId, Identity)>,
    prune_at: Duration,
}

#[derive(Debug)]
struct Answer {
    /// The providerID that was asked for, and the identity.
    told: Packed,
    obtained: Duration,
    until: Duration,
}

impl AnswerCache {
    /// The cached answer for this Node with this providerID, unless it has expired.
    pub(super) fn get(&self, claim: &Claim, now: Duration) -> Option<CachedAnswer> {
        let answer = self.of.get(&claim.uid)?;
        if answer.until <= now {
            return None;
        }
        let (provider_id, identity) = self.packer.unpack(&answer.told);
        (provider_id == claim.provider_id).then(|| CachedAnswer {
            identity: Arc::new(identity),
            until: answer.until,
        })
    }

    pub(super) fn keep(&mut self, claim: &Claim, kept: &CachedAnswer, now: Duration) {
        let told = (claim.provider_id.clone(), (*kept.identity).clone());
        let answer = Answer {
            told: self.packer.pack(&told),
            obtained: now,
            until: kept.until,
        };
        self.of.insert(claim.uid.clone(), answer);
    }

    /// Makes the answer of this Node expire when it has this age, if it does not expire before.
    pub(super) fn expire_at_age(&mut self, uid: &NodeUid, age: Duration) {
        if let Some(answer) = self.of.get_mut(uid) {
            answer.until = answer.until.min(answer.obtained + age);
        }
    }

    pub(super) fn forget(&mut self, uid: &NodeUid) {
        self.of.remove(uid);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// Drops expired answers from time to time. This also covers Nodes that were deleted while their query was in
    /// flight, which [`AnswerCache::forget`] misses.
    pub(super) fn prune(&mut self, now: Duration, expiry: Duration) {
        if now >= self.prune_at {
            self.of.retain(|_, answer| answer.until > now);
            self.prune_at = now + expiry / 4;
        }
    }
}

/// When an answer obtained now expires, for a random `draw` in [0, 1]: in the last quarter of `expiry`, at one of sixty
/// moments that all answers share, so that those of one moment are renewed in one call.
pub(super) fn expires(now: Duration, expiry: Duration, draw: f64) -> Duration {
    let exact = now + expiry.saturating_sub((expiry / 4).mul_f64(draw.clamp(0.0, 1.0)));
    let mark = (expiry / 60).as_nanos().max(1);
    let since_mark = u64::try_from(exact.as_nanos() % mark).unwrap_or_default();
    exact.saturating_sub(Duration::from_nanos(since_mark))
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
