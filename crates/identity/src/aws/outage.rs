//! While every call fails, whichever ids it names, one part of a query finds out whether EC2 is back.
//!
//! Splitting each failed call would make several calls per try for as long as EC2 is away. The parts take turns,
//! because EC2 may come back for one zone before another, and contain fewer ids each round, because one failing id in
//! each zone looks like an outage, too.

use parking_lot::Mutex;

use super::Part;
use super::query::Query;

/// The number of queries since one failed for all ids in all zones; None if the last one did not.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<usize>>);

impl Outage {
    /// Everything has failed.
    pub(super) fn begin(&self) {
        self.0.lock().get_or_insert(0);
    }

    /// A call has succeeded.
    pub(super) fn end(&self) {
        *self.0.lock() = None;
    }

    /// During an outage, the part of this try, and the others.
    pub(super) fn part(&self, parts: &[Part], query: &Query<'_>) -> Option<(Part, Vec<Part>)> {
        let mut turns = self.0.lock();
        let turn = turns.as_mut()?;
        let zones = |Part { ids, by }: &Part| {
            let by = *by;
            query.by_zone(ids).into_iter().map(move |(_, ids)| Part { ids, by })
        };
        let mut parts: Vec<Part> = parts.iter().flat_map(zones).collect();
        let (round, place) = (turn.checked_div(parts.len())?, *turn % parts.len());
        let mut part = parts.swap_remove(place);
        let ids = part.ids.len();
        part.ids.rotate_left(*turn % ids);
        let rest = part.ids.split_off((ids >> round.min(10)).max(1));
        if !rest.is_empty() {
            parts.push(Part { ids: rest, by: part.by });
        }
        *turn += 1;
        Some((part, parts))
    }
}
