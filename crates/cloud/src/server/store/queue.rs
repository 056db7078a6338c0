//! The pending writes, one queue for each organization. Each organization gets the same time of the writer: the next
//! write is one of the organization that is due first, and a write postpones the next one of its organization by the
//! time that it took (start-time fair queueing). So an organization whose writes are many or long delays its own
//! writes, and one that wrote nothing waits only for the write that runs. A write that nobody waits for any more costs
//! its organization nothing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::error::StoreError;

/// The maximum number of pending writes; more are refused at once.
const QUEUE: usize = 1_024;
/// The maximum number of pending writes of one organization.
const SHARE: usize = QUEUE / 2;
/// The least time for which a write counts.
const LEAST: Duration = Duration::from_micros(1);

/// The pending writes, one queue for each organization.
pub(super) struct Queue<T> {
    state: Mutex<State<T>>,
    changed: Notify,
}

struct State<T> {
    organizations: HashMap<String, Organization<T>>,
    /// The organizations with pending writes, in their order.
    due: BTreeMap<Turn, String>,
    /// The number of the next turn.
    number: u64,
    /// The time at which the last write was due. It passes as writes are taken.
    now: Duration,
    pending: usize,
    closed: bool,
}

/// The time at which an organization is due, and a number, so that of those that are due together the first one waits
/// least.
type Turn = (Duration, u64);

struct Organization<T> {
    writes: VecDeque<T>,
    /// The turn of its next write, if one is pending.
    turn: Option<Turn>,
    /// The time at which its next write is due.
    due: Duration,
    /// The time that its next write is expected to take.
    cost: Duration,
}

impl<T> Default for Queue<T> {
    fn default() -> Self {
        Self {
            state: Mutex::new(State {
                organizations: HashMap::new(),
                due: BTreeMap::new(),
                number: 0,
                now: Duration::ZERO,
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
        let own = state.organizations.get(organization).map_or(0, |own| own.writes.len());
        if state.pending >= QUEUE || own >= SHARE {
            return Err(StoreError::Full);
        }
        state.push(organization, write);
        drop(state);
        self.changed.notify_one();
        Ok(())
    }

    /// Waits for a write, and takes it with the name of its organization. `None` once the queue is closed and empty.
    pub(super) async fn first(&self) -> Option<(String, T)> {
        loop {
            let changed = self.changed.notified();
            let (taken, closed) = {
                let mut state = self.state.lock();
                (state.take(Duration::MAX), state.closed)
            };
            if taken.is_some() || closed {
                return taken;
            }
            changed.await;
        }
    }

    /// Takes the next write, unless none is pending or its organization's last ones took longer than `limit`.
    pub(super) fn next(&self, limit: Duration) -> Option<(String, T)> {
        self.state.lock().take(limit)
    }

    /// A write of `organization` took `time`.
    pub(super) fn spent(&self, organization: &str, time: Duration) {
        let mut state = self.state.lock();
        let Some(own) = state.organizations.get_mut(organization) else {
            return;
        };
        // A short write between two long ones does not hide them.
        own.cost = time.max(own.cost / 2);
        own.due += time;
        if let Some(turn) = own.turn {
            state.due.remove(&turn);
            state.enter(organization);
        }
    }

    /// Refuses further writes; those that are pending can be taken.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_one();
    }
}

impl<T> State<T> {
    fn push(&mut self, organization: &str, write: T) {
        self.pending += 1;
        if self.organizations.len() >= QUEUE {
            self.organizations.retain(|_, own| own.turn.is_some());
        }
        let own = self
            .organizations
            .entry(organization.to_owned())
            .or_insert_with(|| Organization {
                writes: VecDeque::new(),
                turn: None,
                due: Duration::ZERO,
                cost: Duration::ZERO,
            });
        own.writes.push_back(write);
        if own.turn.is_none() {
            own.due = own.due.max(self.now);
            self.enter(organization);
        }
    }

    fn take(&mut self, limit: Duration) -> Option<(String, T)> {
        let first = self.due.first_entry()?;
        let own = self.organizations.get_mut(first.get())?;
        if own.cost > limit {
            return None;
        }
        let organization = first.remove();
        let write = own.writes.pop_front()?;
        self.pending -= 1;
        self.now = own.due;
        own.due += LEAST;
        own.turn = None;
        if !own.writes.is_empty() {
            self.enter(&organization);
        }
        Some((organization, write))
    }

    /// Gives the organization a turn when it is due.
    fn enter(&mut self, organization: &str) {
        if let Some(own) = self.organizations.get_mut(organization) {
            let turn = (own.due, self.number);
            own.turn = Some(turn);
            self.due.insert(turn, organization.to_owned());
            self.number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take<T>(queue: &Queue<T>, most: usize) -> Vec<T> {
        let taken = std::iter::from_fn(|| queue.next(Duration::MAX));
        taken.take(most).map(|(_, write)| write).collect()
    }

    #[tokio::test]
    async fn organizations_take_turns() {
        let queue = Queue::default();
        for number in 0..100 {
            queue.push("busy", ("busy", number)).unwrap();
        }
        queue.push("quiet", ("quiet", 0)).unwrap();
        queue.push("other", ("other", 0)).unwrap();
        assert_eq!(queue.first().await, Some(("busy".to_owned(), ("busy", 0))));
        assert_eq!(take(&queue, 3), [("quiet", 0), ("other", 0), ("busy", 1)]);
        // One that waited for nothing is before one that has more.
        queue.push("quiet", ("quiet", 1)).unwrap();
        assert_eq!(take(&queue, 3), [("quiet", 1), ("busy", 2), ("busy", 3)]);
        queue.close();
        assert!(matches!(queue.push("late", ("late", 0)), Err(StoreError::Stopping)));
        assert_eq!(take(&queue, 1_000).len(), 96);
        assert_eq!(queue.first().await, None);
    }

    #[test]
    fn an_organization_with_long_writes_gets_no_more_time_than_the_others() {
        const MS: Duration = Duration::from_millis(1);
        let queue = Queue::default();
        for number in 0..100 {
            queue.push("long", number).unwrap();
            queue.push("short", number).unwrap();
        }
        let mut numbers = HashMap::new();
        while numbers.get("short") != Some(&100) {
            let (organization, _) = queue.next(Duration::MAX).unwrap();
            queue.spent(&organization, if organization == "long" { MS * 10 } else { MS });
            *numbers.entry(organization).or_insert(0) += 1;
        }
        assert!((10..=12).contains(&numbers["long"]), "{numbers:?}");
        // A commit that has no time for it leaves it there.
        assert_eq!(queue.next(MS * 9), None);
        assert!(queue.next(MS * 10).is_some());
        // Nor after a short one between.
        queue.spent("long", MS);
        assert_eq!(queue.next(MS * 4), None);
    }

    #[test]
    fn a_write_that_nobody_waits_for_costs_its_organization_nothing() {
        let queue = Queue::default();
        queue.push("acme", "long").unwrap();
        for _ in 0..100 {
            queue.push("other", "short").unwrap();
        }
        for _ in 0..10 {
            queue.push("acme", "abandoned").unwrap();
        }
        queue.push("acme", "next").unwrap();
        let mut short = 0;
        loop {
            match queue.next(Duration::MAX).unwrap() {
                (acme, "long") => queue.spent(&acme, Duration::from_secs(2)),
                (other, "short") => {
                    short += 1;
                    queue.spent(&other, Duration::from_millis(100));
                }
                (_, "next") => break,
                _ => {}
            }
        }
        assert!((20..=21).contains(&short), "{short}");
    }

    #[test]
    fn what_is_known_of_organizations_without_writes_is_bounded() {
        let queue = Queue::default();
        for number in 0..QUEUE * 3 {
            queue.push(&number.to_string(), ()).unwrap();
            take(&queue, 1);
        }
        assert!(queue.state.lock().organizations.len() <= QUEUE);
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
        assert_eq!(take(&queue, usize::MAX).len(), QUEUE);
    }
}
