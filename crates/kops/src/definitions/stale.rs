//! Since when what is in force may be gone by: the store, or a file in it, cannot be read any more.

use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_kit::Clock;

use super::error::DefinitionError;

/// What was good last is in force, and whether it still stands in the store cannot be known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Why it cannot; names the file, or the folder of the groups.
    pub error: DefinitionError,
    /// Since when anything has been wrong with it, in whatever words: for people.
    pub since: Timestamp,
    /// For how long by now: for deadlines, because the time of day may jump.
    pub age: Duration,
}

/// When something began, by both times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    time: Timestamp,
    monotonic: Duration,
}

impl Moment {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self {
            time: clock.now(),
            monotonic: clock.monotonic(),
        }
    }

    pub(super) fn stale(self, error: DefinitionError, clock: &dyn Clock) -> Stale {
        Stale {
            error,
            since: self.time,
            age: clock.monotonic().saturating_sub(self.monotonic),
        }
    }
}
