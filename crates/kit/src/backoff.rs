//! The wait after a failure: exponential, capped and jittered, for each object separately.
//!
//! Only a success resets it. A failure during a wait, of an attempt that a change started, neither lengthens the wait
//! nor counts: how often an object changes does not decide when it is retried. Retries never stop.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;

use crate::random;

/// The shape of a backoff: the wait after the first failure, and the longest wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait after the first failure.
    pub base: Duration,
    /// The longest wait after any failure.
    pub cap: Duration,
}

impl Backoff {
    /// Doubles from `base` up to `cap`.
    #[must_use]
    pub const fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap }
    }

    /// The longest wait after the given number of failures in a row, the first being 1; 0 counts as 1.
    #[must_use]
    pub fn ceiling(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.cap)
    }

    /// The wait for a draw in [0, 1]: between half of the ceiling and all of it.
    #[must_use]
    pub fn drawn(&self, failures: u32, draw: f64) -> Duration {
        self.ceiling(failures).mul_f64(0.5 + draw.clamp(0.0, 1.0) / 2.0)
    }

    /// The wait after the given number of failures in a row, drawn at random, so that what failed together is not
    /// retried together.
    #[must_use]
    pub fn delay(&self, failures: u32) -> Duration {
        self.drawn(failures, random::f64())
    }
}

/// `duration`, lengthened or shortened at random by up to the given share of it, so that the polls of replicas spread.
#[must_use]
pub fn jittered(duration: Duration, share: f64) -> Duration {
    duration.mul_f64((1.0 + share.clamp(0.0, 1.0) * (2.0 * random::f64() - 1.0)).max(0.0))
}

/// The failures in a row of each object. Stores nothing for objects that do not fail.
#[derive(Debug)]
pub struct Backoffs<K> {
    shape: Backoff,
    failures: Mutex<HashMap<K, Failures>>,
}

/// The failures in a row of one object.
#[derive(Clone, Copy, Debug, Default)]
struct Failures {
    count: u32,
    /// The end of the wait after the last one that counts; monotonic.
    due: Duration,
}

impl<K: Eq + Hash + Clone> Backoffs<K> {
    /// No failure yet.
    #[must_use]
    pub fn new(shape: Backoff) -> Self {
        Self {
            shape,
            failures: Mutex::default(),
        }
    }

    /// Counts one more failure of `key`, unless it still waits because of an earlier one, and returns how long to wait
    /// from `now` on, on the monotonic clock.
    pub fn next(&self, key: &K, now: Duration) -> Duration {
        let mut all = self.failures.lock();
        let failures = all.entry(key.clone()).or_default();
        if now >= failures.due {
            failures.count = failures.count.saturating_add(1);
            failures.due = now.saturating_add(self.shape.delay(failures.count));
        }
        failures.due.saturating_sub(now)
    }

    /// `key` succeeded or is gone: its next failure counts as the first.
    pub fn reset(&self, key: &K) {
        self.failures.lock().remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));

    #[test]
    fn doubles_up_to_the_cap() {
        let ceilings: Vec<u64> = (1..=8).map(|n| SHAPE.ceiling(n).as_secs()).collect();
        assert_eq!(ceilings, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(SHAPE.ceiling(u32::MAX), SHAPE.cap);
    }

    #[test]
    fn draws_between_half_and_all() {
        assert_eq!(SHAPE.drawn(3, 0.0), Duration::from_secs(2));
        assert_eq!(SHAPE.drawn(3, 1.0), Duration::from_secs(4));
        for failures in 1..200 {
            let delay = SHAPE.delay(failures);
            assert!(
                delay >= SHAPE.ceiling(failures) / 2 && delay <= SHAPE.ceiling(failures),
                "{failures}: {delay:?}"
            );
        }
    }

    #[test]
    fn objects_fail_apart_and_a_success_resets() {
        let backoffs = Backoffs::new(SHAPE);
        let second = Duration::from_secs;
        backoffs.next(&"a", second(10));
        backoffs.next(&"a", second(20));
        assert!(backoffs.next(&"a", second(30)) >= second(2));
        assert!(backoffs.next(&"b", second(30)) <= second(1));
        backoffs.reset(&"a");
        assert!(!backoffs.failures.lock().contains_key("a"));
        assert!(backoffs.next(&"a", second(30)) <= second(1));
    }

    #[test]
    fn a_failure_during_a_wait_neither_counts_nor_lengthens_it() {
        let backoffs = Backoffs::new(SHAPE);
        let millis = Duration::from_millis;
        let end = backoffs.next(&"a", millis(1_000));
        for later in (0..500).step_by(50) {
            assert_eq!(
                backoffs.next(&"a", millis(1_000 + later)),
                end.saturating_sub(millis(later))
            );
        }
        assert_eq!(backoffs.failures.lock()["a"].count, 1);
        backoffs.next(&"a", millis(1_000) + end);
        assert_eq!(backoffs.failures.lock()["a"].count, 2);
    }

    #[test]
    fn jitter_stays_within_its_share() {
        for _ in 0..100 {
            let drawn = jittered(Duration::from_secs(10), 0.1);
            assert!(
                drawn >= Duration::from_secs(9) && drawn <= Duration::from_secs(11),
                "{drawn:?}"
            );
        }
    }
}
