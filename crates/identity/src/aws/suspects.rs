//! The ids and zones that made calls fail, which are queried separately for a while.
//!
//! This affects only which ids share a call, never an answer. It is bounded, and a success clears an entry at once.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use tidewaiter_kit::SharedClock;

use super::call::{By, MAX_FILTER_VALUES};
use super::instance_id::InstanceId;
use super::query::Query;
use super::{MAX_IDS, Part};

/// Longer than the maximum backoff for a refused Node, so that a bad id fails only one call.
const ID_APART: Duration = Duration::from_hours(1);

/// The time for which a zone is queried separately after a failure. Its first success ends this.
const ZONE_APART: Duration = Duration::from_mins(15);

/// Limits the remembered ids and zones: more than there are Nodes that could name them.
const MAX_IDS_APART: usize = 10_000;
const MAX_ZONES_APART: usize = 64;

#[derive(Debug)]
pub(super) struct Suspects {
    clock: SharedClock,
    apart: Mutex<Apart>,
}

#[derive(Debug, Default)]
struct Apart {
    ids: HashMap<InstanceId, Duration>,
    zones: HashMap<Box<str>, Duration>,
}

impl Suspects {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            apart: Mutex::default(),
        }
    }

    /// Marks ids that EC2 does not know, or that make it fail. They are queried by filter, separately from the others.
    pub(super) fn suspect_ids<'a>(&self, ids: impl Iterator<Item = &'a InstanceId>) {
        let now = self.clock.monotonic();
        let mut apart = self.apart.lock();
        for id in ids {
            remember(&mut apart.ids, id.clone(), now, now + ID_APART, MAX_IDS_APART);
        }
    }

    /// Marks a zone whose call failed while calls for other zones succeeded.
    pub(super) fn suspect_zone(&self, zone: &str) {
        let now = self.clock.monotonic();
        remember(
            &mut self.apart.lock().zones,
            zone.into(),
            now,
            now + ZONE_APART,
            MAX_ZONES_APART,
        );
    }

    /// Clears answered ids and their zones.
    pub(super) fn clear<'a>(&self, ids: impl Iterator<Item = &'a InstanceId>, query: &Query<'_>) {
        let mut apart = self.apart.lock();
        if apart.ids.is_empty() && apart.zones.is_empty() {
            return;
        }
        for id in ids {
            apart.ids.remove(id);
            apart.zones.remove(query.zone(id));
        }
    }

    /// The initial calls: by id for all unsuspected ids, by id for each suspected zone, and by filter for suspected
    /// ids.
    pub(super) fn divide(&self, query: &Query<'_>) -> Vec<Part> {
        let now = self.clock.monotonic();
        let apart = self.apart.lock();
        let held = |until: Option<&Duration>| until.is_some_and(|until| *until > now);
        let (suspected, rest): (Vec<_>, Vec<_>) = query.ids().cloned().partition(|id| held(apart.ids.get(id)));
        let (in_trouble, clean): (Vec<_>, Vec<_>) =
            rest.into_iter().partition(|id| held(apart.zones.get(query.zone(id))));
        drop(apart);
        let zones = query.by_zone(&in_trouble).into_iter().map(|(_, ids)| ids);
        let by_id = clean.chunks(MAX_IDS).map(<[_]>::to_vec).chain(zones);
        let by_filter = suspected.chunks(MAX_FILTER_VALUES).map(<[_]>::to_vec);
        by_id
            .map(|ids| Part { ids, by: By::Id })
            .chain(by_filter.map(|ids| Part { ids, by: By::Filter }))
            .collect()
    }
}

/// Inserts a key. If the map is full, expired entries are removed; if it is still full, a new key is dropped.
fn remember<K: Eq + Hash>(apart: &mut HashMap<K, Duration>, key: K, now: Duration, until: Duration, limit: usize) {
    if apart.len() >= limit {
        apart.retain(|_, until| *until > now);
    }
    if apart.len() < limit || apart.contains_key(&key) {
        apart.insert(key, until);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_remembered_is_bounded_and_runs_out() {
        let second = Duration::from_secs(1);
        let mut apart = HashMap::new();
        for key in 0..5 {
            remember(&mut apart, key, second, 2 * second, 3);
        }
        assert_eq!(apart.len(), 3);
        remember(&mut apart, 0, second, 9 * second, 3);
        assert_eq!(apart[&0], 9 * second, "what is known may be renewed when it is full");
        remember(&mut apart, 7, 2 * second, 3 * second, 3);
        assert_eq!(apart.len(), 2, "what has run out makes room");
    }
}
