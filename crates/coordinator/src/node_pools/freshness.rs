//! The check that the loop that reads the nodes still runs.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The end of the last request, successful or not, for the readiness check: monotonic time in milliseconds, or
/// [`Freshness::IDLE`].
pub(super) struct Freshness(AtomicU64);

impl Freshness {
    /// This replica does not lead, so it requests nothing.
    const IDLE: u64 = u64::MAX;

    pub(super) fn idle() -> Self {
        Self(AtomicU64::new(Self::IDLE))
    }

    pub(super) fn note(&self, now: Duration) {
        let now = u64::try_from(now.as_millis()).unwrap_or(Self::IDLE);
        self.0.store(now, Ordering::Relaxed);
    }

    pub(super) fn check(&self, now: Duration, limit: Duration) -> Result<(), String> {
        let last = self.0.load(Ordering::Relaxed);
        let age = now.saturating_sub(Duration::from_millis(last));
        if age <= limit {
            return Ok(());
        }
        Err(format!(
            "the cloud was not asked for its nodes for {} s: the loop hangs",
            age.as_secs()
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_fails_while_the_loop_of_a_leader_hangs() {
        let second = Duration::from_secs;
        let (freshness, limit) = (Freshness::idle(), second(360));
        assert_eq!(
            freshness.check(second(10_000), limit),
            Ok(()),
            "a standby asks for nothing"
        );
        freshness.note(second(100));
        assert_eq!(freshness.check(second(460), limit), Ok(()));
        let error = freshness.check(second(461), limit).unwrap_err();
        assert_eq!(error, "the cloud was not asked for its nodes for 361 s: the loop hangs");
        freshness.note(second(461));
        assert_eq!(freshness.check(second(461), limit), Ok(()));
    }
}
