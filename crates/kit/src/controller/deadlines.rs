//! The keys that are requeued at a time although nothing changes, on the kit's clock.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::clock::SharedClock;
use crate::key::Key;

/// The longest that a key waits: a pass that comes too early only finds nothing to do.
const MAX_WAIT: Duration = Duration::from_hours(24);

pub(super) struct Deadlines {
    clock: SharedClock,
    /// Monotonic.
    order: BTreeSet<(Duration, Key)>,
    of: BTreeMap<Key, Duration>,
}

impl Deadlines {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            order: BTreeSet::new(),
            of: BTreeMap::new(),
        }
    }

    pub(super) fn set(&mut self, key: Key, delay: Duration) {
        self.clear(&key);
        let due = self.clock.monotonic().saturating_add(delay.min(MAX_WAIT));
        self.order.insert((due, key.clone()));
        self.of.insert(key, due);
    }

    pub(super) fn clear(&mut self, key: &Key) {
        if let Some(due) = self.of.remove(key) {
            self.order.remove(&(due, key.clone()));
        }
    }

    /// The next key that is due. Waits forever while there is none. Cancel safe.
    pub(super) async fn next(&mut self) -> Key {
        loop {
            let Some((due, _)) = self.order.first() else {
                std::future::pending::<()>().await;
                continue;
            };
            let wait = due.saturating_sub(self.clock.monotonic());
            if wait.is_zero()
                && let Some((_, key)) = self.order.pop_first()
            {
                self.of.remove(&key);
                return key;
            }
            self.clock.sleep(wait).await;
        }
    }
}
