//! Whether a watch is followed, as those who rest on a cache need to know it.
//!
//! A watch that is well may be silent for long, so silence says nothing. What says something is a failure: the first of a row
//! begins a time of trouble, and a good answer, or a minute without another failure, ends it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::SharedClock;

/// A watch that was tried again and has not failed for so long is well, even if nothing happened in it.
pub(super) const QUIET: Duration = Duration::from_mins(1);

/// Lists or watches of a kind fail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchTrouble {
    /// Since when, without a good answer in between.
    pub since: Timestamp,
    /// The same on the monotonic clock.
    pub since_monotonic: Duration,
    /// What the last failure said.
    pub error: String,
}

/// Clones share it.
#[derive(Clone)]
pub(super) struct Health {
    clock: SharedClock,
    state: Arc<Mutex<Option<State>>>,
}

struct State {
    trouble: WatchTrouble,
    /// Monotonic.
    last: Duration,
}

impl Health {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            state: Arc::default(),
        }
    }

    pub(super) fn trouble(&self) -> Option<WatchTrouble> {
        let now = self.clock.monotonic();
        let state = self.lock();
        let state = state.as_ref().filter(|state| now.saturating_sub(state.last) <= QUIET);
        state.map(|state| state.trouble.clone())
    }

    pub(super) fn failed(&self, error: String) {
        let now = self.clock.monotonic();
        let mut state = self.lock();
        let before = state.take().filter(|state| now.saturating_sub(state.last) <= QUIET);
        let (since, since_monotonic) = match before {
            Some(State { trouble, .. }) => (trouble.since, trouble.since_monotonic),
            None => (self.clock.now(), now),
        };
        let trouble = WatchTrouble {
            since,
            since_monotonic,
            error,
        };
        *state = Some(State { trouble, last: now });
    }

    pub(super) fn well(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Clock as _, ManualClock};

    #[test]
    fn trouble_lasts_from_the_first_failure_to_a_good_answer_or_a_quiet_minute() {
        let clock = ManualClock::default();
        let health = Health::new(clock.shared());
        assert_eq!(health.trouble(), None);
        let begun = clock.monotonic();
        for word in ["refused", "reset"] {
            health.failed(word.to_owned());
            clock.advance(Duration::from_secs(50));
            let trouble = health.trouble().unwrap();
            assert_eq!((trouble.since_monotonic, trouble.error.as_str()), (begun, word));
        }
        clock.advance(Duration::from_secs(11));
        assert_eq!(health.trouble(), None, "it was tried again, and did not fail");
        health.failed("refused".to_owned());
        assert_eq!(
            health.trouble().unwrap().since_monotonic,
            clock.monotonic(),
            "another trouble"
        );
        health.well();
        assert_eq!(health.trouble(), None);
    }
}
