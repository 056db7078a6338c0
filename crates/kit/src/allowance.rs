//! A limit on how often something is done for one object: a token bucket as arithmetic (GCRA), without a clock and
//! without memory.

use std::time::Duration;

/// `burst` at once, then one in each `refill`.
///
/// Its only state is `full_at`, the monotonic time at which the bucket of an object is full again; `None` is a full
/// bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    /// The size of the bucket.
    pub burst: u32,
    /// The time after which one more is allowed.
    pub refill: Duration,
}

impl Allowance {
    /// Takes a token at `now` from a bucket that is full at `full_at`. Returns the time at which it is full again.
    ///
    /// # Errors
    /// The time until the bucket has a token, if it is empty.
    pub fn take(&self, full_at: Option<Duration>, now: Duration) -> Result<Duration, Duration> {
        let full_at = full_at.unwrap_or_default().max(now) + self.refill;
        let wait = full_at.saturating_sub(now + self.refill * self.burst);
        if wait.is_zero() { Ok(full_at) } else { Err(wait) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_burst_and_then_one_after_each_refill() {
        let allowance = Allowance {
            burst: 3,
            refill: 10 * SECOND,
        };
        let (mut full_at, mut now) = (None, 100 * SECOND);
        for _ in 0..3 {
            full_at = Some(allowance.take(full_at, now).unwrap());
        }
        assert_eq!(allowance.take(full_at, now), Err(10 * SECOND));
        now += 4 * SECOND;
        assert_eq!(allowance.take(full_at, now), Err(6 * SECOND));
        now += 6 * SECOND;
        full_at = Some(allowance.take(full_at, now).unwrap());
        assert_eq!(allowance.take(full_at, now), Err(10 * SECOND));
        // Unused, it becomes full and no more than that.
        now += 1_000 * SECOND;
        for _ in 0..3 {
            full_at = Some(allowance.take(full_at, now).unwrap());
        }
        assert_eq!(allowance.take(full_at, now), Err(10 * SECOND));
    }
}
