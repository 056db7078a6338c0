//! Simulated time: tokio's clock, which a paused runtime moves to the next timer whenever every task waits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Clock, ManualClock, SharedClock, SystemClock};

/// A clock that follows tokio's. In a runtime with paused time (`#[tokio::test(start_paused = true)]`) a whole role runs in simulated
/// time. In a runtime without paused time it moves with the machine's clock.
///
/// Clones share the time. Processes that are simulated in one runtime may each have one: [`SimulatedClock::stop_for`] stops
/// only the process that has this one.
#[derive(Clone, Debug)]
pub struct SimulatedClock {
    start: Instant,
    /// Milliseconds for which the process was stopped.
    stopped: Arc<AtomicU64>,
}

impl SimulatedClock {
    /// A clock that starts now. Its time of day is its monotonic time since the Unix epoch.
    #[expect(
        clippy::disallowed_methods,
        reason = "tokio's own clock is the one that is simulated"
    )]
    #[must_use]
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
            stopped: Arc::default(),
        }
    }

    /// A clock that starts now, ready to share.
    #[must_use]
    pub fn shared() -> SharedClock {
        Arc::new(Self::new())
    }

    /// Simulates SIGSTOP followed by SIGCONT: the time passes, but nothing runs in the process meanwhile. Sleeps that are
    /// pending end later by as much, as on a suspended machine.
    pub fn stop_for(&self, time: Duration) {
        let millis = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        self.stopped.fetch_add(millis, Ordering::SeqCst);
    }

    /// Time since the start, stops included.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed() + Duration::from_millis(self.stopped.load(Ordering::SeqCst))
    }
}

impl Default for SimulatedClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH
            .saturating_add(self.monotonic())
            .unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        ManualClock::ORIGIN + self.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn follows_paused_time_and_its_own_stops() {
        let (one, other) = (SimulatedClock::new(), SimulatedClock::new());
        one.sleep(Duration::from_hours(1)).await;
        one.stop_for(Duration::from_secs(9));
        assert_eq!(one.elapsed(), Duration::from_secs(3609));
        assert_eq!(other.elapsed(), Duration::from_hours(1));
        assert_eq!(one.now(), Timestamp::UNIX_EPOCH + one.monotonic());
        assert_eq!(one.monotonic(), ManualClock::ORIGIN + one.elapsed());
    }
}
