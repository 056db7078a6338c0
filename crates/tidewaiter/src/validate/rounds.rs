//! The number of validations: until the cluster is ready several times in a row, or the wait has elapsed.
//!
//! The wait limits how long a cluster may be not ready. A series that has begun is completed even after it, so that the
//! result does not depend on when the cluster became ready. There is always one validation when the wait has elapsed.

use std::time::Duration;

use tidewaiter_validation::Outcome;

/// The remaining validations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rounds {
    wait: Duration,
    interval: Duration,
    count: u32,
    /// Monotonic.
    started: Duration,
    /// The number of consecutive successes.
    ready: u32,
}

impl Rounds {
    pub(super) fn new(wait: Duration, interval: Duration, count: u32, now: Duration) -> Self {
        Self {
            wait,
            interval,
            count,
            started: now,
            ready: 0,
        }
    }

    /// The maximum wait; `None` without a wait.
    pub(super) fn wait(&self) -> Option<Duration> {
        Some(self.wait).filter(|wait| !wait.is_zero())
    }

    /// For how long by `now`.
    pub(super) fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started)
    }

    /// The number of consecutive successes, and the required number.
    pub(super) fn row(&self) -> (u32, u32) {
        (self.ready, self.count)
    }

    /// After how long to look again, when a look ended `now` with this; none when it was the last one.
    pub(super) fn next(&mut self, outcome: Outcome, now: Duration) -> Option<Duration> {
        if outcome == Outcome::Ready {
            self.ready += 1;
            return (self.ready < self.count).then_some(self.interval);
        }
        self.ready = 0;
        let left = self.wait.saturating_sub(self.elapsed(now));
        (!left.is_zero()).then_some(left.min(self.interval))
    }
}
