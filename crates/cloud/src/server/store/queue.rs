//! The pending writes, one queue for each organization. The writer takes one write of each in turn, so that an
//! organization that writes much delays its own writes and not those of others.

use std::collections::{HashMap, VecDeque};

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::StoreError;

/// The maximum number of pending writes; more are refused at once.
const QUEUE: usize = 1_024;
/// The maximum number of pending writes of one organization.
const SHARE: usize = QUEUE / 2;

/// The pending writes, one queue for each organization.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    /// The organizations with pending writes; the first one is next.
    turns: VecDeque<String>,
    writes: HashMap<String, VecDeque<T>>,
    pending: usize,
    closed: bool,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                turns: VecDeque::new(),
                writes: HashMap::new(),
                pending: 0,
                closed: false,
            }),
            changed: Notify::new(),
        }
    }
}

impl<T> Queue<T> {
    /// Adds a write of `organization`.
    pub(super) fn push(&self, organization: &str, write: T) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        if state.closed {
            return Err(StoreError::Stopping);
        }
        let own = state.writes.get(organization).map_or(0, VecDeque::len);
        if state.pending >= QUEUE || own >= SHARE {
            return Err(StoreError::Full);
        }
        if own == 0 {
            state.turns.push_back(organization.to_owned());
        }
        let writes = state.writes.entry(organization.to_owned()).or_default();
        writes.push_back(write);
        state.pending += 1;
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a write, and takes it. `None` once the queue is closed and empty.
    pub(super) async fn first(&self) -> Option<T> {
        loop {
            let changed = self.changed.notified();
            let (mut taken, closed) = self.next(1);
            if let Some(first) = taken.pop() {
                return Some(first);
            }
            if closed {
                return None;
            }
            changed.await;
        }
    }

    /// Takes at most `most` writes of those that are pending.
    pub(super) fn more(&self, most: usize) -> Vec<T> {
        self.next(most).0
    }

    /// The next writes, and whether no more are added.
    fn next(&self, most: usize) -> (Vec<T>, bool) {
        let mut state = self.state.lock();
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(organization) = state.turns.pop_front()
        {
            let Some(writes) = state.writes.get_mut(&organization) else {
                continue;
            };
            taken.extend(writes.pop_front());
            if writes.is_empty() {
                state.writes.remove(&organization);
            } else {
                state.turns.push_back(organization);
            }
        }
        state.pending -= taken.len();
        (taken, state.closed)
    }

    /// Refuses further writes; those that are pending can be taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn organizations_take_turns() {
        let queue = Queue::default();
        for number in 0..100 {
            queue.push("busy", ("busy", number)).unwrap();
        }
        queue.push("quiet", ("quiet", 0)).unwrap();
        queue.push("other", ("other", 0)).unwrap();
        assert_eq!(queue.first().await, Some(("busy", 0)));
        assert_eq!(queue.more(3), [("quiet", 0), ("other", 0), ("busy", 1)]);
        queue.push("quiet", ("quiet", 1)).unwrap();
        assert_eq!(queue.more(3), [("busy", 2), ("quiet", 1), ("busy", 3)]);
        queue.close();
        assert!(matches!(queue.push("late", ("late", 0)), Err(StoreError::Stopping)));
        assert_eq!(queue.more(1_000).len(), 96);
        assert_eq!(queue.first().await, None);
    }

    #[test]
    fn one_organization_does_not_fill_the_queue() {
        let queue = Queue::default();
        while queue.push("busy", ()).is_ok() {}
        queue.push("quiet", ()).unwrap();
        for number in 0..QUEUE {
            let _ = queue.push(&number.to_string(), ());
        }
        assert!(matches!(queue.push("late", ()), Err(StoreError::Full)));
        assert_eq!(queue.next(usize::MAX).0.len(), QUEUE);
    }
}
