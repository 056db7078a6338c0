//! Since when the content in use may be stale, because the store or a file in it cannot be read.

use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_kit::Clock;

use super::error::DefinitionError;

/// The last valid version is in use, and it is unknown whether it is still current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The reason; names the file, or the folder of the groups.
    pub error: DefinitionError,
    /// The start of the current series of failures, for messages.
    pub since: Timestamp,
    /// The time since then, for deadlines: it does not depend on the wall clock, which may jump.
    pub age: Duration,
}

/// A point in time, on the wall clock and the monotonic clock.
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
