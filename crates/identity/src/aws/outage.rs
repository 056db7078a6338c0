//! While every call fails, whichever ids it names, one part of a query finds out whether EC2 is back.
//!
//! Splitting each failed call would make several calls of each try, for as long as EC2 is away. The parts take turns, because EC2 may
//! come back for one zone before another. From time to time everything is queried as usual, because several ids that fail may look like
//! this, too.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// One try in this many queries all parts.
const WHOLE: usize = 8;

/// Whether the last query failed for all ids in all zones, and how many have tried since.
#[derive(Debug, Default)]
pub(super) struct Outage(Mutex<Option<usize>>);

impl Outage {
    /// Everything has failed.
    pub(super) fn begin(&self) {
        self.lock().get_or_insert(0);
    }

    /// A call has succeeded.
    pub(super) fn end(&self) {
        *self.lock() = None;
    }

    /// The number of this try, which decides the part; `None` when all are to be queried.
    pub(super) fn turn(&self) -> Option<usize> {
        let mut turns = self.lock();
        let turn = turns.as_mut()?;
        *turn = turn.wrapping_add(1);
        (!turn.is_multiple_of(WHOLE)).then_some(*turn)
    }

    fn lock(&self) -> MutexGuard<'_, Option<usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
