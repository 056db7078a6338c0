//! How often one looks: until it is ready so many times in a row, or the time to wait is over.
//!
//! The time to wait limits how long a cluster may be not ready. A row that has begun is finished whatever the time, because a
//! cluster that is ready at the end of it must not be told from one that is ready in the middle. There is always one look when the time is over.

use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use tidewaiter_kit::Clock;
use tidewaiter_validation::{Outcome, Verdict};

use super::progress::Progress;
use super::signals::{Interrupt, Interrupts};

/// Between two changes of what a terminal shows.
const TICK: Duration = Duration::from_secs(1);

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

/// How it ended.
#[derive(Debug)]
pub(super) struct Ended {
    /// The last verdict, if there was one.
    pub(super) verdict: Option<Verdict>,
    /// What ended it before its time.
    pub(super) interrupt: Option<Interrupt>,
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

    /// Looks until it was the last time, or something interrupts.
    ///
    /// # Errors
    /// Those of `look`.
    pub(super) async fn run<L: Future<Output = Result<Verdict>>>(
        mut self,
        clock: &dyn Clock,
        look: impl Fn() -> L,
        progress: &mut Progress,
        mut interrupts: impl Interrupts,
    ) -> Result<Ended> {
        let mut verdict = None;
        loop {
            let seen = during(look(), &self, clock, progress, &mut interrupts).await;
            let seen = match seen {
                Ok(seen) => seen?,
                Err(interrupt) => {
                    let interrupt = Some(interrupt);
                    return Ok(Ended { verdict, interrupt });
                }
            };
            let next = self.next(seen.outcome(), clock.monotonic());
            if next.is_some() {
                progress.tell(&seen, &self, clock);
            }
            verdict = Some(seen);
            let interrupt = match next {
                None => None,
                Some(after) => match during(clock.sleep(after), &self, clock, progress, &mut interrupts).await {
                    Ok(()) => continue,
                    Err(interrupt) => Some(interrupt),
                },
            };
            return Ok(Ended { verdict, interrupt });
        }
    }
}

/// Awaits `work` while a terminal is kept up to date, unless something interrupts.
async fn during<T>(
    work: impl Future<Output = T>,
    rounds: &Rounds,
    clock: &dyn Clock,
    progress: &mut Progress,
    interrupts: &mut impl Interrupts,
) -> Result<T, Interrupt> {
    let mut work = pin!(work);
    loop {
        progress.draw(rounds, clock);
        tokio::select! {
            biased;
            interrupt = interrupts.next() => return Err(interrupt),
            done = &mut work => return Ok(done),
            () = clock.sleep(TICK), if progress.is_live() => {}
        }
    }
}

#[cfg(test)]
pub(in crate::validate) mod tests;
