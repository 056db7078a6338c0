//! Since when the content in use may be stale, because the store or a file in it cannot be read.

use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_kit::Clock;

use super::error::DefinitionError;

/// The last valid version is in use, and it is unknown whether it is still current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Why it cannot; names the file, or the folder of the groups.
    pub error: DefinitionError,
    /// Since when anything has been wrong with it, in whatever words: for people.
    pub since: Timestamp,
    /// For how long by now: for deadlines, because the time of day may jump.
    pub age: Duration,
}

/// The start of something, on both clocks.
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
