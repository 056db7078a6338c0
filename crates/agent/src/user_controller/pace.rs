//! Limits how often the agent undoes the changes of others. Pure.

use std::time::Duration;

/// Restores that follow each other without a pause.
const BURST: u32 = 50;

/// Then, one in this time: a writer that fights with the agent takes neither the processor nor the disk.
const INTERVAL: Duration = Duration::from_millis(200);

/// A generic cell rate algorithm: when the next restore would be due if restores were evenly spread.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace(Duration);

impl Pace {
    /// The delay before the next restore.
    pub(crate) fn wait(&self, now: Duration) -> Option<Duration> {
        let ahead = self.0.saturating_sub(now);
        ahead.checked_sub(INTERVAL * (BURST - 1)).filter(|wait| !wait.is_zero())
    }

    /// There was one.
    pub(crate) fn count(&mut self, now: Duration) {
        self.0 = self.0.max(now) + INTERVAL;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_a_fight_is_slowed() {
        let mut pace = Pace::default();
        let start = Duration::from_hours(1);
        for number in 0..BURST {
            assert_eq!(pace.wait(start), None, "{number}");
            pace.count(start);
        }
        assert_eq!(pace.wait(start), Some(INTERVAL));
        assert_eq!(pace.wait(start + INTERVAL), None);
        pace.count(start + INTERVAL);
        assert_eq!(pace.wait(start + INTERVAL), Some(INTERVAL));
        assert_eq!(pace.wait(start + Duration::from_mins(1)), None);
    }
}
