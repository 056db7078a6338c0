//! Backoff for watches that repeatedly end as soon as they began, without an error (a proxy whose backend is gone).
//! kube's watcher would start them again as fast as they end; client-go counts this as an error too.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use crate::backoff::Backoff;

/// A watch that ended earlier is a failure.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);
/// The number of short watches in a row that are restarted at once: a server that restarts closes some.
const FREE_RESTARTS: u32 = 2;
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(250), Duration::from_secs(8));

/// The number of watches above which those that did not begin within [`FORGET_AFTER`] are dropped: plugins have watches
/// of any kind.
const MAX_TRACKED_WATCHES: usize = 256;
/// Longer than any watch lasts.
const FORGET_AFTER: Duration = Duration::from_mins(5);

/// The watches of a process by their request.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<HashMap<String, Watch>>);

#[derive(Debug, Default)]
struct Watch {
    /// Monotonic time at which the watch began last.
    begun: Option<Duration>,
    short: u32,
}

impl Pace {
    /// The wait, at `now`, before the watch is started.
    pub(super) fn before(&self, watch: &str, now: Duration) -> Duration {
        let mut watches = self.0.lock();
        let Some(watch) = watches.get_mut(watch) else {
            return Duration::ZERO;
        };
        // Taken: the caller sees a watch that fails to begin, and has a backoff of its own.
        watch.short = match watch.begun.take() {
            Some(begun) if now.saturating_sub(begun) < MIN_WATCH_DURATION => watch.short.saturating_add(1),
            _ => 0,
        };
        match watch.short.saturating_sub(FREE_RESTARTS) {
            0 => Duration::ZERO,
            short => BACKOFF.delay(short),
        }
    }

    /// The watch began at `now`.
    pub(super) fn begun(&self, watch: String, now: Duration) {
        let mut watches = self.0.lock();
        if watches.len() >= MAX_TRACKED_WATCHES {
            let lately = |begun| now.saturating_sub(begun) < FORGET_AFTER;
            watches.retain(|_, watch| watch.begun.is_some_and(lately));
        }
        watches.entry(watch).or_default().begun = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slows_down_what_ends_at_once_and_nothing_else() {
        let pace = Pace::default();
        let mut now = Duration::from_secs(100);
        let mut waits = Vec::new();
        for _ in 0..12 {
            let wait = pace.before("nodes", now);
            waits.push(wait);
            now += wait;
            pace.begun("nodes".to_owned(), now);
            now += Duration::from_millis(5);
        }
        assert_eq!(waits[..3], [Duration::ZERO; 3]);
        assert!(waits[3] > Duration::ZERO && waits[3] <= BACKOFF.base, "{waits:?}");
        assert!(waits[11] >= BACKOFF.cap / 2, "{waits:?}");
        assert_eq!(pace.before("pods", now), Duration::ZERO);
        pace.begun("nodes".to_owned(), now);
        assert_eq!(pace.before("nodes", now + MIN_WATCH_DURATION), Duration::ZERO);
    }

    #[test]
    fn watches_that_are_no_more_are_forgotten() {
        let pace = Pace::default();
        for number in 0..10_000_u32 {
            pace.begun(format!("kinds{number}"), Duration::from_secs(10 * u64::from(number)));
        }
        assert!(pace.0.lock().len() <= MAX_TRACKED_WATCHES, "{}", pace.0.lock().len());
    }

    #[test]
    fn a_watch_that_never_began_is_not_slowed_down_here() {
        let pace = Pace::default();
        for _ in 0..10 {
            assert_eq!(pace.before("nodes", Duration::ZERO), Duration::ZERO);
        }
    }
}
