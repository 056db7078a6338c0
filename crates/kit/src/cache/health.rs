//! The health of a cache: since when its lists or watches fail.
//!
//! A healthy watch may be silent for hours, so silence means nothing. The first failure in a row starts a period of
//! trouble; a complete list, an event, a watch that was established before it was cut, or one that does not fail for a
//! minute ends it.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;
use prometheus::IntGauge;

use crate::clock::SharedClock;

/// A watch that was started again and has not failed for this long is healthy, even without events.
pub(super) const QUIET: Duration = Duration::from_mins(1);

/// A cache that has been stale for longer makes the replica unready.
const STALE_LIMIT: Duration = Duration::from_mins(3);

/// Lists or watches of a kind fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchTrouble {
    /// Since when, without a good answer in between.
    pub since: Timestamp,
    /// `since` on the monotonic clock.
    pub since_monotonic: Duration,
    /// The text of the last failure.
    pub error: String,
    /// Its meaning.
    pub cause: TroubleCause,
}

/// The reason why lists or watches fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TroubleCause {
    /// The API server does not have the kind: its definition was deleted, and all its objects with it.
    Undefined,
    /// The API server does not permit them.
    Denied,
    /// Anything else, such as an API server that is away: time may help.
    Other,
}

/// Clones share it.
#[derive(Clone)]
pub(super) struct Health {
    clock: SharedClock,
    /// Seconds since the first failure; 0 without trouble.
    stale: IntGauge,
    trouble: Arc<Mutex<Option<WatchTrouble>>>,
}

impl Health {
    pub(super) fn new(clock: SharedClock, stale: IntGauge) -> Self {
        Self {
            clock,
            stale,
            trouble: Arc::default(),
        }
    }

    /// The readiness check.
    ///
    /// # Errors
    /// Since when, and why, when the cache has been stale for minutes, or the API server does not have the kind any
    /// more.
    pub(super) fn check(&self) -> Result<(), String> {
        let Some(trouble) = self.trouble() else { return Ok(()) };
        if trouble.cause != TroubleCause::Undefined
            && self.clock.monotonic().saturating_sub(trouble.since_monotonic) <= STALE_LIMIT
        {
            return Ok(());
        }
        Err(format!(
            "stale since {}: {}",
            trouble.since.strftime("%FT%TZ"),
            trouble.error
        ))
    }

    pub(super) fn trouble(&self) -> Option<WatchTrouble> {
        self.trouble.lock().clone()
    }

    pub(super) fn failed(&self, error: String, cause: TroubleCause) {
        let now = self.clock.monotonic();
        let mut trouble = self.trouble.lock();
        let (since, since_monotonic) = match trouble.take() {
            Some(before) => (before.since, before.since_monotonic),
            None => (self.clock.now(), now),
        };
        let age = now.saturating_sub(since_monotonic).as_secs();
        self.stale.set(i64::try_from(age).unwrap_or(i64::MAX));
        *trouble = Some(WatchTrouble {
            since,
            since_monotonic,
            error,
            cause,
        });
    }

    /// True if there was a failure that nothing has ended yet.
    pub(super) fn has_failed(&self) -> bool {
        self.trouble.lock().is_some()
    }

    /// A list is complete, an event came, or the watch was established.
    pub(super) fn recovered(&self) {
        *self.trouble.lock() = None;
        self.stale.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, ManualClock};

    #[test]
    fn trouble_lasts_from_the_first_failure_to_a_recovery() {
        let clock = ManualClock::default();
        let stale = IntGauge::new("stale", "Stale.").unwrap();
        let health = Health::new(clock.shared(), stale.clone());
        assert_eq!(health.trouble(), None);
        let begun = clock.monotonic();
        for word in ["refused", "reset"] {
            health.failed(word.to_owned(), TroubleCause::Other);
            clock.advance(Duration::from_secs(100));
            let trouble = health.trouble().unwrap();
            assert_eq!((trouble.since_monotonic, trouble.error.as_str()), (begun, word));
        }
        health.recovered();
        assert_eq!(health.trouble(), None);
        health.failed("refused".to_owned(), TroubleCause::Other);
        assert_eq!(
            health.trouble().unwrap().since_monotonic,
            clock.monotonic(),
            "another trouble"
        );
    }

    #[test]
    fn a_cache_whose_kind_was_deleted_is_not_ready_at_once() {
        let clock = ManualClock::default();
        let health = Health::new(clock.shared(), IntGauge::new("stale", "Stale.").unwrap());
        health.failed("the API server does not know it".to_owned(), TroubleCause::Undefined);
        assert!(health.check().unwrap_err().ends_with("does not know it"));
        health.recovered();
        assert_eq!(health.check(), Ok(()));
    }

    #[test]
    fn a_cache_that_is_stale_for_minutes_is_not_ready() {
        let clock = ManualClock::default();
        let stale = IntGauge::new("stale", "Stale.").unwrap();
        let health = Health::new(clock.shared(), stale.clone());
        for _ in 0..9 {
            health.failed("connection refused".to_owned(), TroubleCause::Other);
            assert_eq!(health.check(), Ok(()));
            clock.advance(Duration::from_secs(20));
        }
        clock.advance(Duration::from_secs(1));
        health.failed("connection refused".to_owned(), TroubleCause::Other);
        assert_eq!(stale.get(), 181);
        assert!(health.check().unwrap_err().ends_with("connection refused"));
        health.recovered();
        assert_eq!((health.check(), stale.get()), (Ok(()), 0));
    }
}
