//! The only place that reads a clock or waits for one to move.
//!
//! There are two kinds of time: [`Clock::now`] is for people and for fields of objects, and may jump;
//! [`Clock::monotonic`] is for every deadline, and goes on while the process is stopped or the machine suspended.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, Either, select};
use jiff::{SignedDuration, Timestamp};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::watch;

use crate::in_flight::InFlight;

mod simulated;

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

/// A clock that only [`ManualClock::advance`] and [`ManualClock::jump`] move.
///
/// Clones share the time.
#[derive(Clone, Debug)]
pub struct ManualClock {
    start: Timestamp,
    elapsed: Arc<watch::Sender<Duration>>,
    /// In seconds.
    jumped: Arc<AtomicI64>,
    sleepers: InFlight,
}

impl ManualClock {
    /// A clock that starts at `start`; its monotonic time starts at one hour, so that a test may subtract.
    #[must_use]
    pub fn new(start: Timestamp) -> Self {
        Self {
            start,
            elapsed: Arc::new(watch::Sender::new(Self::ORIGIN)),
            jumped: Arc::default(),
            sleepers: InFlight::new(),
        }
    }

    /// Monotonic time at creation.
    pub const ORIGIN: Duration = Duration::from_hours(1);

    /// Moves both times on and wakes every sleeper whose time has come.
    pub fn advance(&self, by: Duration) {
        self.elapsed.send_modify(|elapsed| *elapsed += by);
    }

    /// Moves the time of day alone, in either direction: somebody has set the clock of the machine.
    pub fn jump(&self, seconds: i64) {
        self.jumped.fetch_add(seconds, Ordering::SeqCst);
    }

    /// Completes when at least `count` sleeps are pending: a test awaits this before it moves the clock, so that no
    /// sleep begins after the move that was meant to end it.
    pub async fn sleeping(&self, count: usize) {
        self.sleepers.until(|pending| pending >= count).await;
    }

    /// This clock, ready to share.
    #[must_use]
    pub fn shared(&self) -> SharedClock {
        Arc::new(self.clone())
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new(Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(24 * 365 * 56))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        let since = self.monotonic().saturating_sub(Self::ORIGIN);
        let jumped = SignedDuration::from_secs(self.jumped.load(Ordering::SeqCst));
        let now = self.start.saturating_add(since).unwrap_or(Timestamp::MAX);
        now.saturating_add(jumped).unwrap_or(Timestamp::MAX)
    }

    fn monotonic(&self) -> Duration {
        *self.elapsed.borrow()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let deadline = self.monotonic().saturating_add(duration);
        let mut elapsed = self.elapsed.subscribe();
        let sleeper = self.sleepers.enter();
        async move {
            let _sleeper = sleeper;
            if elapsed.wait_for(|now| *now >= deadline).await.is_err() {
                // Every handle of the clock is gone: it will never move again.
                futures::future::pending::<()>().await;
            }
        }
        .boxed()
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
