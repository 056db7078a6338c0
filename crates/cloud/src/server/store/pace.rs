//! How much of the audit log the changes of a day may fill. Without this limit, whoever changes something could fill the log until it drops the
//! row about it.
//!
//! The changes of an organization fill a quarter of its log in a day, at most, so what the log has is there for four days. One member has
//! half of that, 150,000 changes by default. Everybody has a small part besides, so that nobody is locked out by others; and deletions are not limited at all, so that an
//! owner can end the logins of whoever uses everything up. The limits are in memory: each replica has its own, and a restart begins again.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::StatusCode;

use super::stored::{StorageLimits, What};
use crate::server::refusal::Refusal;

/// The part of the log that is filled in a day.
const DAY_PART: i64 = 4;
/// The part of an organization's day that is one member's.
const SHARE: i64 = 2;
/// What everybody can add in a day, in bytes: some hundred changes.
const OWN: i64 = 256 * 1024;
const DAY: Duration = Duration::from_hours(24);
/// Unused entries are dropped beyond this number.
const KEYS: usize = 50_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Pace {
    clock: DefaultClock,
    /// What every user and cluster can add.
    own: DefaultKeyedRateLimiter<String>,
    users: DefaultKeyedRateLimiter<String>,
    organizations: DefaultKeyedRateLimiter<String>,
    clusters: DefaultKeyedRateLimiter<String>,
}

/// The bytes of a day, which may be added at once.
fn limiter(bytes: i64) -> DefaultKeyedRateLimiter<String> {
    let bytes = u32::try_from(bytes.max(OWN)).ok().and_then(NonZeroU32::new);
    let bytes = bytes.unwrap_or(NonZeroU32::MAX);
    let quota = Quota::with_period(DAY / bytes.get()).unwrap_or(Quota::per_second(bytes));
    RateLimiter::keyed(quota.allow_burst(bytes))
}

impl Pace {
    pub(super) fn new(limits: StorageLimits) -> Self {
        let day = |what| limits.of(what) / DAY_PART;
        Self {
            clock: DefaultClock::default(),
            own: limiter(OWN),
            users: limiter(day(What::Audit) / SHARE),
            organizations: limiter(day(What::Audit)),
            clusters: limiter(day(What::Reports)),
        }
    }

    /// Counts `bytes` that `actor` adds to the log `what` of `owner`. What is neither a user's nor a cluster's is not limited.
    pub(super) fn count(&self, actor: &str, what: What, owner: &str, bytes: i64) -> Result<(), Refusal> {
        let bytes = u32::try_from(bytes)
            .ok()
            .and_then(NonZeroU32::new)
            .unwrap_or(NonZeroU32::MIN);
        if !actor.contains(':') || self.take(&self.own, actor, bytes).is_ok() {
            return Ok(());
        }
        let refuse = |whose: &str, seconds: u64| {
            let word = what.word();
            Refusal {
                retry_after: Some(seconds),
                ..Refusal::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    format!(
                        "{whose} changed as much as fills the audit log in a day, the maximum: try again in {seconds} seconds (deletions are \
                         always possible), or ask the operator of the server to raise storageMiB.{word}"
                    ),
                )
            }
        };
        if what == What::Reports {
            return self
                .take(&self.clusters, actor, bytes)
                .map_err(|wait| refuse("the cluster has", wait));
        }
        self.take(&self.users, actor, bytes)
            .map_err(|wait| refuse("you have", wait))?;
        let all = self.take(&self.organizations, owner, bytes);
        all.map_err(|wait| refuse("the organization has", wait))
    }

    /// The number of seconds until there is room, if there is none.
    fn take(&self, limiter: &DefaultKeyedRateLimiter<String>, key: &str, bytes: NonZeroU32) -> Result<(), u64> {
        if limiter.len() > KEYS {
            limiter.retain_recent();
        }
        match limiter.check_key_n(&key.to_owned(), bytes) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(not_until)) => Err(not_until.wait_time_from(self.clock.now()).as_secs() + 1),
            // A change is smaller than what everybody can add.
            Err(_) => Err(DAY.as_secs()),
        }
    }
}
