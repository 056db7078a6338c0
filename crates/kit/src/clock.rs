//! The only place that reads a clock or waits for one to move.
//!
//! There are two kinds of time: [`Clock::now`] is for people and for fields of objects, and may jump;
//! [`Clock::monotonic`] is for every deadline, and goes on while the process is stopped or the machine suspended.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, select};
use jiff::Timestamp;
use rustix::time::{ClockId, clock_gettime};

#[cfg(any(test, feature = "test-util"))]
mod manual;
#[cfg(any(test, feature = "test-util"))]
mod simulated;

#[cfg(any(test, feature = "test-util"))]
pub use manual::ManualClock;
#[cfg(any(test, feature = "test-util"))]
pub use simulated::SimulatedClock;

/// A clock, shared by everything that needs one.
pub type SharedClock = Arc<dyn Clock>;

/// A source of time that a test can replace.
pub trait Clock: Send + Sync + Debug {
    /// The time of day, for records that people and other programs read. It may jump in either direction: no deadline
    /// is ever computed from it.
    fn now(&self) -> Timestamp;

    /// Time since an arbitrary fixed point. Never goes back, and goes on while the process is stopped (SIGSTOP) and
    /// while the machine is suspended, so that a deadline that passed meanwhile is seen to have passed.
    fn monotonic(&self) -> Duration;

    /// Completes `duration` from now. A suspended machine may lengthen it: code that acts on a deadline reads
    /// [`Clock::monotonic`] again after waking.
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()>;
}

/// The future did not complete in the time that it was given, and was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no answer within {0:?}")]
pub struct Elapsed(pub Duration);

/// Runs `future` for at most `limit`. A future that is complete when the limit has passed is a success.
///
/// # Errors
/// [`Elapsed`] when the limit came first. What the future had begun may then have happened or not.
pub async fn timeout<T>(clock: &dyn Clock, limit: Duration, future: impl Future<Output = T>) -> Result<T, Elapsed> {
    match select(Box::pin(future), clock.sleep(limit)).await {
        Either::Left((output, _)) => Ok(output),
        Either::Right(((), _)) => Err(Elapsed(limit)),
    }
}

/// The machine's clocks.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl SystemClock {
    /// The machine's clock, ready to share.
    #[must_use]
    pub fn shared() -> SharedClock {
        Arc::new(Self)
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn monotonic(&self) -> Duration {
        // CLOCK_BOOTTIME, not CLOCK_MONOTONIC (which std's Instant reads): the latter stands still during suspend.
        let time = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        let nanos = u32::try_from(time.tv_nsec).unwrap_or_default();
        Duration::new(seconds, nanos)
    }

    #[expect(clippy::disallowed_methods, reason = "the only place that reads the clock")]
    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        tokio::time::sleep(duration).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_system_clock_never_goes_back() {
        let clock = SystemClock;
        let first = clock.monotonic();
        assert!(first > Duration::ZERO);
        assert!(clock.monotonic() >= first);
    }

    #[tokio::test]
    async fn a_sleep_ends_when_its_time_has_come_and_not_before() {
        let clock = ManualClock::default();
        let mut sleep = clock.sleep(2 * SECOND);
        clock.sleeping(1).await;
        clock.advance(SECOND);
        assert!(sleep.as_mut().now_or_never().is_none());
        clock.advance(SECOND);
        assert!(sleep.as_mut().now_or_never().is_some());
    }

    #[test]
    fn both_times_move_together_until_the_time_of_day_jumps() {
        let clock = ManualClock::default();
        let (day, monotonic) = (clock.now(), clock.monotonic());
        clock.advance(90 * SECOND);
        assert_eq!(clock.now().duration_since(day).as_secs(), 90);
        assert_eq!(clock.monotonic(), monotonic + 90 * SECOND);
        clock.jump(-100);
        assert_eq!(clock.now().duration_since(day).as_secs(), -10);
        assert_eq!(clock.monotonic(), monotonic + 90 * SECOND);
    }

    #[tokio::test]
    async fn a_timeout_drops_the_future() {
        let clock = ManualClock::default();
        let mover = clock.clone();
        let (outcome, ()) = futures::join!(timeout(&clock, SECOND, futures::future::pending::<()>()), async {
            mover.sleeping(1).await;
            mover.advance(SECOND);
        });
        assert_eq!(outcome, Err(Elapsed(SECOND)));
        assert_eq!(timeout(&clock, SECOND, async { 7 }).await, Ok(7));
    }
}
