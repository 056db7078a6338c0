//! Validates as often as the rounds require, shows progress, and handles interrupts.

use std::pin::pin;
use std::time::Duration;

use anyhow::Result;
use tidewaiter_kit::Clock;
use tidewaiter_validation::Verdict;

use super::progress::Progress;
use super::rounds::Rounds;
use super::signals::{Interrupt, Interrupts};

/// The interval between two updates of a terminal.
const TICK: Duration = Duration::from_secs(1);

/// The end of the series.
#[derive(Debug)]
pub(super) struct Ended {
    /// The last verdict, if there was one.
    pub(super) verdict: Option<Verdict>,
    /// The signal that interrupted the wait.
    pub(super) interrupt: Option<Interrupt>,
}

/// Looks until it was the last time, or something interrupts.
///
/// # Errors
/// Those of `look`.
pub(super) async fn watch<L: Future<Output = Result<Verdict>>>(
    mut rounds: Rounds,
    clock: &dyn Clock,
    look: impl Fn() -> L,
    progress: &mut Progress,
    mut interrupts: impl Interrupts,
) -> Result<Ended> {
    let mut verdict = None;
    loop {
        let seen = during(look(), &rounds, clock, progress, &mut interrupts).await;
        let seen = match seen {
            Ok(seen) => seen?,
            Err(interrupt) => {
                let interrupt = Some(interrupt);
                return Ok(Ended { verdict, interrupt });
            }
        };
        let next = rounds.next(seen.outcome(), clock.monotonic());
        if next.is_some() {
            progress.update(&seen, &rounds, clock);
        }
        verdict = Some(seen);
        let interrupt = match next {
            None => None,
            Some(after) => match during(clock.sleep(after), &rounds, clock, progress, &mut interrupts).await {
                Ok(()) => continue,
                Err(interrupt) => Some(interrupt),
            },
        };
        return Ok(Ended { verdict, interrupt });
    }
}

/// Awaits `work` while updating a terminal, unless a signal interrupts.
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
