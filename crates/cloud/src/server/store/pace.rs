//! The part of the audit log that the changes of a day fill. Without a limit, a member could fill the log until it
//! drops the row about what the member did.
//!
//! The changes of an organization fill at most a quarter of its log in a day, so the log reaches back four days. One
//! member has half of that, 150,000 changes by default. Every caller has a small part besides, so that others cannot
//! lock one out; and deletions are not limited, so that an owner can end the logins of a member who uses everything up.
//! The limits are in memory: each replica has its own, and a restart resets them.

use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use super::storage_limits::{StorageLimits, What};
use crate::server::refusal::Refusal;

/// The part of the log that is filled in a day.
const DAY_PART: i64 = 4;
/// The part of an organization's day that is one member's.
const SHARE: i64 = 2;
/// The bytes that everybody can add in a day: some hundred changes.
const OWN: i64 = 256 * 1024;
const DAY: Duration = Duration::from_hours(24);
/// Unused entries are dropped beyond this number.
const KEYS: usize = 50_000;

/// The limits of the rows that changes add to the audit log.
#[derive(Debug)]
pub(super) struct Pace {
    clock: DefaultClock,
    /// The quota of every user and cluster.
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

    /// Counts `bytes` that `actor` adds to the log `what` of `owner`. What is neither a user's nor a cluster's is not
    /// limited.
    pub(super) fn count(&self, actor: &str, what: What, owner: &str, bytes: i64) -> Result<(), Refusal> {
        let bytes = u32::try_from(bytes).ok().and_then(NonZeroU32::new);
        let bytes = bytes.unwrap_or(NonZeroU32::MIN);
        if !actor.contains(':') || self.take(&self.own, actor, bytes).is_ok() {
            return Ok(());
        }
        let refuse = |whose: &str, seconds: u64| {
            let word = what.word();
            let message = format!(
                "{whose} changed as much as fills the audit log in a day, the maximum: try again in {seconds} seconds \
                 (deletions are always possible), or ask the operator of the server to raise storageMiB.{word}"
            );
            Refusal::too_many(message, seconds)
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

    /// The seconds until the bytes fit; `None` if they fit now.
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

#[cfg(test)]
mod tests {
    use super::*;

    const ROW: i64 = 1_000;

    /// Returns the number of rows that `actor` can add.
    fn rows(pace: &Pace, actor: &str, what: What, owner: &str) -> i64 {
        let mut rows = 0;
        while pace.count(actor, what, owner, ROW).is_ok() {
            rows += 1;
        }
        rows
    }

    #[test]
    fn nobody_uses_up_what_others_need() {
        let mib = 1024 * 1024;
        let limits = StorageLimits::default();
        let day = limits.of(What::Audit) / DAY_PART;
        let pace = Pace::new(limits);
        // A row more or less, because time passes.
        let near = |found: i64, bytes: i64| (found - bytes / ROW).abs() < 50;
        let first = rows(&pace, "user:1", What::Audit, "acme");
        assert!(near(first, day / SHARE + OWN), "{first}");
        rows(&pace, "user:2", What::Audit, "acme");
        // The organization's day is over, and each other user has a part all the same.
        let third = rows(&pace, "user:3", What::Audit, "acme");
        assert!(near(third, OWN), "{third}");
        let refused = pace.count("user:3", What::Audit, "acme", ROW).unwrap_err();
        assert!(refused.message.contains("the organization has") && refused.retry_after.is_some());
        assert!(rows(&pace, "user:4", What::Audit, "other") > first / 2);
        // A cluster has its own.
        let cluster = rows(&pace, "cluster:1", What::Reports, "1");
        assert!(near(cluster, 128 * mib + OWN), "{cluster}");
        assert!(pace.count("system", What::Audit, "acme", ROW).is_ok());
    }
}
