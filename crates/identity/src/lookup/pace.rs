//! The time of the next call: the one place that slows down, for all Nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewaiter_kit::{Backoff, SharedClock};

use super::PATIENCE;
use crate::identity::Identity;
use crate::refusal::Refusal;

/// The cloud throttles: its token bucket needs time to refill, and other callers use it too.
const THROTTLED: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

/// There was no response. A refused connection takes no time at all, so without this every retry of every Node would be
/// a call. Short, because only one zone may be failing.
const UNAVAILABLE: Backoff = Backoff::new(Duration::from_millis(200), Duration::from_secs(1));

/// The outcomes of the queries in one call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CallOutcome {
    answered: usize,
    throttled: usize,
    unavailable: usize,
}

impl CallOutcome {
    pub(super) fn count(&mut self, result: &Result<Identity, Refusal>) {
        match result {
            Err(Refusal::Throttled { .. }) => self.throttled += 1,
            Err(refusal) if refusal.is_transient() => self.unavailable += 1,
            _ => self.answered += 1,
        }
    }
}

#[derive(Debug)]
pub(super) struct Pace {
    clock: SharedClock,
    failures: u32,
    /// No call before this (monotonic time), because of how the last ones ended.
    not_before: Duration,
    /// The start of each call in flight.
    under_way: BTreeMap<u64, Duration>,
}

impl Pace {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            failures: 0,
            not_before: Duration::ZERO,
            under_way: BTreeMap::new(),
        }
    }

    /// The maximum time until the next call, if no call in flight ends before; `None` if it may start now.
    pub(super) fn delay(&self) -> Option<Duration> {
        let patience_ends = self
            .under_way
            .values()
            .max()
            .map_or(Duration::ZERO, |begun| *begun + PATIENCE);
        let delay = self
            .not_before
            .max(patience_ends)
            .saturating_sub(self.clock.monotonic());
        (!delay.is_zero()).then_some(delay)
    }

    pub(super) fn begun(&mut self, call: u64) {
        self.under_way.insert(call, self.clock.monotonic());
    }

    /// The cloud is back: no earlier failure delays a call any more.
    pub(super) fn reset(&mut self) {
        (self.failures, self.not_before) = (0, Duration::ZERO);
    }

    /// A success ends a series of failures, but not a delay that another call has caused meanwhile. A call without
    /// callers, which tries parked claims, changes nothing.
    pub(super) fn ended(&mut self, call: u64, verdict: CallOutcome) {
        self.under_way.remove(&call);
        if verdict == CallOutcome::default() {
            return;
        }
        let shape = match verdict {
            CallOutcome { throttled: 1.., .. } => THROTTLED,
            CallOutcome {
                answered: 0,
                unavailable: 1..,
                ..
            } => UNAVAILABLE,
            _ => {
                self.failures = 0;
                return;
            }
        };
        self.failures = self.failures.saturating_add(1);
        self.not_before = self.not_before.max(self.clock.monotonic() + shape.delay(self.failures));
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;

    use super::*;

    const THROTTLE: CallOutcome = CallOutcome {
        answered: 9,
        throttled: 1,
        unavailable: 0,
    };
    const NOTHING: CallOutcome = CallOutcome {
        answered: 0,
        throttled: 0,
        unavailable: 10,
    };
    const PARTLY: CallOutcome = CallOutcome {
        answered: 1,
        throttled: 0,
        unavailable: 9,
    };

    fn pace() -> (ManualClock, Pace) {
        let clock = ManualClock::default();
        let pace = Pace::new(clock.shared());
        (clock, pace)
    }

    #[test]
    fn one_call_at_a_time_unless_it_takes_long() {
        let (clock, mut pace) = pace();
        assert_eq!(pace.delay(), None);
        pace.begun(1);
        assert_eq!(pace.delay(), Some(PATIENCE));
        clock.advance(PATIENCE);
        assert_eq!(pace.delay(), None, "patience is over");
        pace.begun(2);
        assert_eq!(pace.delay(), Some(PATIENCE), "one young call is enough to wait for");
        pace.ended(2, PARTLY);
        assert_eq!(pace.delay(), None, "the old one is waited for no more");
    }

    #[test]
    fn throttling_backs_off_further_each_time_and_a_success_resets_it() {
        let (clock, mut pace) = pace();
        for ceiling in [1, 2, 4, 8, 16, 30, 30] {
            pace.ended(1, THROTTLE);
            let delay = pace.delay().unwrap();
            let ceiling = Duration::from_secs(ceiling);
            assert!(delay >= ceiling / 2 && delay <= ceiling, "{delay:?} of {ceiling:?}");
            clock.advance(delay);
        }
        pace.ended(2, PARTLY);
        pace.ended(3, THROTTLE);
        assert!(pace.delay().unwrap() <= Duration::from_secs(1));
    }

    #[test]
    fn a_success_does_not_cut_short_the_wait_of_another_call() {
        let (_clock, mut pace) = pace();
        pace.begun(1);
        pace.ended(2, THROTTLE);
        pace.ended(1, PARTLY);
        assert!(pace.delay().is_some());
    }

    #[test]
    fn no_answer_at_all_waits_and_a_zone_without_answers_does_not() {
        let (clock, mut pace) = pace();
        for _ in 0..9 {
            pace.ended(1, NOTHING);
            let delay = pace.delay().unwrap();
            assert!(
                delay >= Duration::from_millis(100) && delay <= Duration::from_secs(1),
                "{delay:?}"
            );
            clock.advance(delay);
        }
        pace.ended(2, PARTLY);
        assert_eq!(pace.delay(), None);
    }

    /// Replicas and other clusters of the account that were throttled at the same time do not retry at the same time.
    #[test]
    fn the_wait_is_drawn() {
        let waits: std::collections::BTreeSet<_> = (0..20)
            .map(|_| {
                let (_clock, mut pace) = pace();
                pace.ended(1, THROTTLE);
                pace.delay()
            })
            .collect();
        assert!(waits.len() > 10, "{waits:?}");
    }
}
