//! A gauge that counts objects by state: `tidewaiter_plugins{state="ready"} 3`.
//!
//! Every state has a series from the start, so the number of series does not depend on the number of objects.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};

use parking_lot::Mutex;
use prometheus::IntGaugeVec;

use super::{Metrics, MetricsError};
use crate::key::Key;

/// Counts objects by state, and stores an entry of each.
pub struct StateGauge<T> {
    entries: Mutex<BTreeMap<Key, T>>,
    gauge: IntGaugeVec,
    states: Vec<&'static str>,
    states_of: fn(&T) -> &[&'static str],
}

impl<T> StateGauge<T> {
    /// A gauge with one label and these states of it, registered. `states_of` returns the states in which the object of
    /// an entry is counted: one, or one for each of its parts.
    ///
    /// # Errors
    /// [`MetricsError`], if the name is taken or is not a metric's name.
    pub fn new(
        metrics: &Metrics,
        [name, help, label]: [&str; 3],
        states: impl IntoIterator<Item = &'static str>,
        states_of: fn(&T) -> &[&'static str],
    ) -> Result<Self, MetricsError> {
        let counted = Self {
            entries: Mutex::default(),
            gauge: metrics.gauge_vec(name, help, &[label])?,
            states: states.into_iter().collect(),
            states_of,
        };
        counted.change(|_| {});
        Ok(counted)
    }

    /// Sets the entry of an object, or removes it when the object is gone.
    pub fn set(&self, key: &Key, entry: Option<T>) {
        let mut entries = self.entries.lock();
        let before = entries.remove(key);
        let [old, new] = [&before, &entry].map(|entry| entry.as_ref().map_or(&[][..], self.states_of));
        // An object whose state stays is never counted twice or not at all.
        if old != new {
            for (states, by) in [(new, 1), (old, -1)] {
                for state in states {
                    self.gauge.with_label_values(&[*state]).add(by);
                }
            }
        }
        if let Some(entry) = entry {
            entries.insert(key.clone(), entry);
        }
    }

    /// Changes several entries, whose states depend on each other, and counts all of them again.
    pub fn change(&self, change: impl FnOnce(&mut BTreeMap<Key, T>)) {
        let mut entries = self.entries.lock();
        change(&mut entries);
        let states: Vec<&str> = entries.values().flat_map(self.states_of).copied().collect();
        for state in &self.states {
            let count = states.iter().filter(|other| *other == state).count();
            let gauge = self.gauge.with_label_values(&[*state]);
            gauge.set(i64::try_from(count).unwrap_or(i64::MAX));
        }
    }

    /// Reads the entries. None changes meanwhile, so other gauges can be set to what they say.
    pub fn read<R>(&self, read: impl FnOnce(&BTreeMap<Key, T>) -> R) -> R {
        read(&self.entries.lock())
    }
}

impl<T> Debug for StateGauge<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateGauge").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;

    #[test]
    fn objects_are_counted_in_the_states_that_they_have_now() {
        let metrics = Metrics::new(&ManualClock::default().shared()).unwrap();
        let names = ["tidewaiter_test", "Test.", "state"];
        let gauge: StateGauge<Vec<&'static str>> = StateGauge::new(&metrics, names, ["a", "b"], Vec::as_slice).unwrap();
        let shown = || {
            let text = metrics.encode().unwrap();
            let count = |state: &str| -> i64 {
                let series = format!("tidewaiter_test{{state=\"{state}\"}} ");
                let count = text.lines().find_map(|line| line.strip_prefix(&series));
                count.unwrap().parse().unwrap()
            };
            (count("a"), count("b"))
        };
        assert_eq!(shown(), (0, 0));
        let [one, other] = ["one", "other"].map(Key::new);
        gauge.set(&one, Some(vec!["a", "b", "b"]));
        gauge.set(&other, Some(vec!["a"]));
        assert_eq!(shown(), (2, 2));
        gauge.set(&one, Some(vec!["b"]));
        assert_eq!(shown(), (1, 1));
        gauge.set(&other, None);
        gauge.set(&other, None);
        assert_eq!(shown(), (0, 1));
        gauge.change(|all| {
            all.insert(other, vec!["b"]);
        });
        assert_eq!((shown(), gauge.read(BTreeMap::len)), ((0, 2), 2));
    }
}
