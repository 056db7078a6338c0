//! A clock that a test moves.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use tokio::sync::watch;

use super::{Clock, SharedClock};
use crate::in_flight::InFlight;

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
        Self::new(Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 56))
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
