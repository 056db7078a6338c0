//! How often one looks: until it is ready so many times in a row, or the time to wait is over.
//!
//! The time to wait limits how long a cluster may be not ready. A row that has begun is finished whatever the time, because a
//! cluster that is ready at the end of it must not be told from one that is ready in the middle. There is always one look when the time is over.

use std::time::Duration;

use tidewaiter_validation::Outcome;

/// What is left of the looks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rounds {
    wait: Duration,
    interval: Duration,
    count: u32,
    /// Monotonic.
    started: Duration,
    /// How many times in a row it was ready.
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

    /// How long one waits at most; none when one does not wait.
    pub(super) fn wait(&self) -> Option<Duration> {
        Some(self.wait).filter(|wait| !wait.is_zero())
    }

    /// For how long by `now`.
    pub(super) fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.started)
    }

    /// How many times in a row it was ready, of how many.
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
