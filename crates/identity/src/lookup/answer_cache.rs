//! The answers that are kept, one for each Node.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidewaiter_api::{NodeUid, ProviderId};
use tidewaiter_kit::{Packed, Packer};

use crate::claim::Claim;
use crate::identity::Identity;

/// What the cloud said, and until when (monotonic time) that is taken for true.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) identity: Arc<Identity>,
    pub(super) until: Duration,
}

#[derive(Debug, Default)]
pub(super) struct KeptAnswers {
    of: HashMap<NodeUid, Answer>,
    packer: Packer<Identity>,
    prune_at: Duration,
}

#[derive(Debug)]
struct Answer {
    provider_id: ProviderId,
    identity: Packed,
    until: Duration,
}

impl KeptAnswers {
    /// What is kept for this Node with this providerID, unless its time is up.
    pub(super) fn get(&self, claim: &Claim, now: Duration) -> Option<Kept> {
        let answer = self.of.get(&claim.uid)?;
        (answer.provider_id == claim.provider_id && answer.until > now).then(|| Kept {
            identity: Arc::new(self.packer.unpack(&answer.identity)),
            until: answer.until,
        })
    }

    pub(super) fn keep(&mut self, claim: &Claim, kept: &Kept) {
        let answer = Answer {
            provider_id: claim.provider_id.clone(),
            identity: self.packer.pack(&kept.identity),
            until: kept.until,
        };
        self.of.insert(claim.uid.clone(), answer);
    }

    pub(super) fn forget(&mut self, uid: &NodeUid) {
        self.of.remove(uid);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.of.len()
    }

    /// Lets go of what has expired, now and then: the net under [`KeptAnswers::forget`], for Nodes that went while they were
    /// asked for.
    pub(super) fn prune(&mut self, now: Duration, expiry: Duration) {
        if now >= self.prune_at {
            self.of.retain(|_, answer| answer.until > now);
            self.prune_at = now + expiry / 4;
        }
    }
}

/// When an answer of now expires, for a draw in [0, 1]: in the last quarter of `expiry`, on one of the sixty marks that all
/// answers share, so that those of one mark are asked again in one call and not in one each.
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
