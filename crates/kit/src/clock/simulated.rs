//! Simulated time: tokio's clock, which a paused runtime moves to the next timer whenever every task waits.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::{Clock, ManualClock, SharedClock, SystemClock};

/// A clock that follows tokio's. In a runtime with paused time (`#[tokio::test(start_paused = true)]`) a whole role
/// runs in simulated time. In a runtime without paused time it moves with the machine's clock.
///
/// Clones share the time. Processes that are simulated in one runtime may each have one: [`SimulatedClock::stop_for`]
/// stops only the process that has this one.
#[derive(Clone, Debug)]
pub struct SimulatedClock {
    start: Instant,
    /// For how long the process was stopped in all.
    stopped: Arc<watch::Sender<Duration>>,
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
            stopped: Arc::new(watch::Sender::new(Duration::ZERO)),
        }
    }

    /// A clock that starts now, ready to share.
    #[must_use]
    pub fn shared() -> SharedClock {
        Arc::new(Self::new())
    }

    /// Simulates SIGSTOP followed by SIGCONT: the time passes, nothing runs in the process meanwhile, and afterwards
    /// every sleep whose time has come ends at once.
    pub fn stop_for(&self, time: Duration) {
        self.stopped.send_modify(|stopped| *stopped += time);
    }

    /// Time since the start, stops included.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed() + *self.stopped.borrow()
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
        let mut stops = self.stopped.subscribe();
        let clock = self.clone();
        let deadline = self.elapsed().saturating_add(duration);
        async move {
            loop {
                let left = deadline.saturating_sub(clock.elapsed());
                tokio::select! {
                    biased;
                    () = SystemClock.sleep(left) => return,
                    _ = stops.changed() => {}
                }
            }
        }
        .boxed()
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

    #[tokio::test(start_paused = true)]
    async fn a_stop_ends_the_sleeps_whose_time_has_come_meanwhile() {
        let clock = SimulatedClock::new();
        let mut sleeps = [8, 10].map(|seconds| clock.sleep(Duration::from_secs(seconds)));
        assert!(sleeps.iter_mut().all(|sleep| sleep.now_or_never().is_none()));
        clock.stop_for(Duration::from_secs(9));
        assert!(sleeps[0].as_mut().now_or_never().is_some());
        assert!(sleeps[1].as_mut().now_or_never().is_none());
        sleeps[1].as_mut().await;
        assert_eq!(clock.elapsed(), Duration::from_secs(10));
    }
}
