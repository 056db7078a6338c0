//! The keys of the objects that wait to be reconciled, each once, first in, first out.
//!
//! A key is never lost and never held twice, so the queue is bounded by the number of objects. While this replica
//! stands by, no trigger fills it: it would collect the name of every object that ever existed. When the replica leads,
//! each trigger ([`crate::trigger`]) is called for every object of its cache, as after a start, if it is not
//! [`changes_only`](crate::Trigger::changes_only).

use std::collections::{BTreeSet, VecDeque};
use std::fmt::{self, Debug};
use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::key::Key;

/// A set of keys with an order. Clones share it.
#[derive(Clone, Default)]
pub struct Queue(Arc<Shared>);

#[derive(Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    // Stores one permit for a push while nobody waits, so no push is missed. For one consumer.
    pushed: Notify,
    /// True while triggers push nothing.
    stands_by: AtomicBool,
    sources: Mutex<Sources>,
}

/// The caches whose triggers push into a queue.
#[derive(Default)]
struct Sources {
    /// The first lists that the controller waits for.
    first_lists: Vec<FirstList>,
    /// Each calls a trigger for every object of its cache.
    seeds: Vec<BoxFuture<'static, ()>>,
}

/// Completes with true when the first list of a cache is complete, with false when it never will be.
pub(crate) type FirstList = BoxFuture<'static, bool>;

#[derive(Default)]
struct Waiting {
    order: VecDeque<Key>,
    members: BTreeSet<Key>,
}

impl Queue {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Queues a reconcile of the object; does nothing when it is queued already.
    pub fn push(&self, key: Key) {
        let mut waiting = self.0.waiting.lock();
        if waiting.members.insert(key.clone()) {
            waiting.order.push_back(key);
        }
        drop(waiting);
        self.0.pushed.notify_one();
    }

    /// Queues an object of a cache whose trigger fills this queue, for a reason that is no change of it. Does nothing
    /// while triggers push nothing: the object is queued when they do.
    pub fn push_cached(&self, key: Key) {
        if !self.stands_by() {
            self.push(key);
        }
    }

    /// Adds a cache whose trigger pushes into this queue.
    pub(crate) fn add_source(&self, first_list: Option<FirstList>, seed: BoxFuture<'static, ()>) {
        let mut sources = self.0.sources.lock();
        sources.first_lists.extend(first_list);
        sources.seeds.push(seed);
    }

    /// The first lists of its caches, once.
    pub(crate) fn first_lists(&self) -> Vec<FirstList> {
        mem::take(&mut self.0.sources.lock().first_lists)
    }

    /// Lets triggers push nothing until [`Queue::seed`].
    pub(crate) fn stand_by(&self) {
        self.0.stands_by.store(true, Ordering::SeqCst);
    }

    /// True if triggers push nothing.
    pub(crate) fn stands_by(&self) -> bool {
        self.0.stands_by.load(Ordering::SeqCst)
    }

    /// Lets triggers push from now on, and calls each for every object of its cache.
    pub(crate) async fn seed(&self) {
        // First, so that a change meanwhile is pushed, too.
        self.0.stands_by.store(false, Ordering::SeqCst);
        let seeds = mem::take(&mut self.0.sources.lock().seeds);
        for seed in seeds {
            seed.await;
        }
    }

    /// The number of keys that wait.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.waiting.lock().order.len()
    }

    /// True if none waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Completes when a key waits, and removes none. For the one consumer; cancel safe.
    pub async fn filled(&self) {
        while self.is_empty() {
            self.0.pushed.notified().await;
        }
    }

    /// Removes the key that waits longest, if one waits.
    #[must_use]
    pub fn try_next(&self) -> Option<Key> {
        let mut waiting = self.0.waiting.lock();
        let key = waiting.order.pop_front()?;
        waiting.members.remove(&key);
        if waiting.order.is_empty() {
            // The burst of a cold start is not kept for the life of the process.
            waiting.order.shrink_to(64);
        }
        Some(key)
    }
}

impl Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_each_once_in_order() {
        let queue = Queue::new();
        for name in ["a", "b", "a", "c", "b"] {
            queue.push(Key::new(name));
        }
        assert_eq!(queue.len(), 3);
        for name in ["a", "b", "c"] {
            assert_eq!(queue.try_next(), Some(Key::new(name)));
        }
        assert!(queue.is_empty());
    }

    #[test]
    fn one_that_was_taken_can_wait_again() {
        let queue = Queue::new();
        queue.push(Key::new("a"));
        assert_eq!(queue.try_next(), Some(Key::new("a")));
        assert_eq!(queue.try_next(), None);
        queue.push(Key::new("a"));
        assert_eq!(queue.try_next(), Some(Key::new("a")));
    }

    #[tokio::test]
    async fn a_standby_queues_what_is_pushed_for_no_object_of_a_cache() {
        let queue = Queue::new();
        queue.stand_by();
        queue.push_cached(Key::new("node"));
        queue.push(Key::new("all"));
        queue.seed().await;
        assert_eq!(queue.try_next(), Some(Key::new("all")));
        assert_eq!(queue.try_next(), None);
        queue.push_cached(Key::new("node"));
        assert_eq!(queue.try_next(), Some(Key::new("node")));
    }

    #[tokio::test]
    async fn a_push_wakes_the_waiting_consumer() {
        let queue = Queue::new();
        futures::join!(queue.filled(), async {
            tokio::task::yield_now().await;
            queue.push(Key::new("late"));
        });
        assert_eq!(queue.try_next(), Some(Key::new("late")));
    }
}
