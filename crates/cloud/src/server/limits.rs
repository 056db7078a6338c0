//! Rate limits: requests per second for each caller, and password guesses.

use std::net::IpAddr;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};
use http::StatusCode;
use tokio::sync::Semaphore;

use super::refusal::Refusal;

/// The number of passwords that are verified concurrently: each takes 19 MiB and a core for a while.
const HASHES: usize = 2;
/// The number of guesses, before one more is permitted per six seconds.
const GUESSES: u32 = 20;
/// Unused entries are dropped beyond this number.
const KEYS: usize = 50_000;

/// A request above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooSoon {
    /// The time until a retry, in whole seconds, at least one.
    pub(super) retry_after: u64,
}

/// The rate limits of a server.
#[derive(Debug)]
pub struct Limits {
    callers: DefaultKeyedRateLimiter<String>,
    strangers: DefaultKeyedRateLimiter<IpAddr>,
    guesses: DefaultKeyedRateLimiter<String>,
    clock: DefaultClock,
    /// The permits for concurrent requests.
    pub(super) places: Semaphore,
    /// The permits for concurrent password hashes.
    pub(super) hashes: Semaphore,
}

impl Limits {
    /// Each caller may send `a_second` requests per second, with bursts of ten times as many; `at_once` requests run
    /// concurrently.
    #[must_use]
    pub fn new(a_second: NonZeroU32, at_once: usize) -> Self {
        let quota = Quota::per_second(a_second).allow_burst(a_second.saturating_mul(TEN));
        let guess = Quota::with_period(Duration::from_secs(6)).unwrap_or(quota);
        Self {
            callers: RateLimiter::keyed(quota),
            strangers: RateLimiter::keyed(quota),
            guesses: RateLimiter::keyed(guess.allow_burst(NonZeroU32::new(GUESSES).unwrap_or(NonZeroU32::MIN))),
            clock: DefaultClock::default(),
            places: Semaphore::new(at_once),
            hashes: Semaphore::new(HASHES),
        }
    }

    /// Counts a request of an authenticated caller.
    pub(super) fn caller(&self, actor: &str) -> Result<(), TooSoon> {
        self.count(&self.callers, &actor.to_owned())
    }

    /// Counts an unauthenticated request, by its address.
    pub(super) fn stranger(&self, peer: IpAddr) -> Result<(), TooSoon> {
        self.count(&self.strangers, &peer)
    }

    /// Counts a guess of a password or key, by the account or key.
    pub(super) fn guess(&self, of: &str) -> Result<(), TooSoon> {
        self.count(&self.guesses, &of.to_owned())
    }

    fn count<K: Clone + Eq + std::hash::Hash>(
        &self,
        limiter: &DefaultKeyedRateLimiter<K>,
        key: &K,
    ) -> Result<(), TooSoon> {
        if limiter.len() > KEYS {
            limiter.retain_recent();
        }
        limiter.check_key(key).map_err(|not_until| TooSoon {
            retry_after: not_until.wait_time_from(self.clock.now()).as_secs() + 1,
        })
    }
}

const TEN: NonZeroU32 = match NonZeroU32::new(10) {
    Some(ten) => ten,
    None => NonZeroU32::MIN,
};

impl From<TooSoon> for Refusal {
    fn from(too_soon: TooSoon) -> Self {
        let seconds = too_soon.retry_after;
        let message = format!("too many requests: try again in {seconds} seconds");
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, message)
        }
    }
}
