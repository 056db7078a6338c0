//! Which object is reconciled when: the ones that are queued, at once; the ones that asked for it, at their time.
//!
//! Not kube's applier: that one needs a store of whole objects, keeps each reference that waits for its time twice, with all its
//! strings, and polls every reconcile that is under way whenever one of them moves, which is the square of the Nodes when all
//! of them wait for one answer of the cloud.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio_util::sync::CancellationToken;
use tokio_util::time::{DelayQueue, delay_queue};

use super::attempt::{Again, Attempts, spawn_attempt};
use super::{ControllerError, Reconciler};
use crate::key::Key;
use crate::queue::Queue;

/// The longest that anything waits for its time: a reconcile that comes too early is only in vain.
const LONGEST: Duration = Duration::from_hours(24);

pub(super) struct Runner<R: Reconciler> {
    queue: Queue,
    attempts: Arc<Attempts<R>>,
    /// Reconciles under way at once; 0 is no limit.
    concurrency: usize,
    under_way: FuturesUnordered<BoxFuture<'static, (Key, Result<Again, ControllerError>)>>,
    /// The objects under way, and whether they were asked for again meanwhile.
    busy: HashMap<Key, bool>,
    deadlines: Deadlines,
}

impl<R: Reconciler> Runner<R> {
    pub(super) fn new(queue: Queue, attempts: Arc<Attempts<R>>, concurrency: u16) -> Self {
        Self {
            queue,
            attempts,
            concurrency: usize::from(concurrency),
            under_way: FuturesUnordered::new(),
            busy: HashMap::new(),
            deadlines: Deadlines::default(),
        }
    }

    /// Begins reconciles until `shutdown`, and then waits for those that are under way.
    pub(super) async fn run(mut self, shutdown: &CancellationToken) -> Result<(), ControllerError> {
        loop {
            let free = self.concurrency == 0 || self.busy.len() < self.concurrency;
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some((key, again)) = self.under_way.next() => self.ended(key, again?),
                Some(key) = self.deadlines.next() => self.queue.push(key),
                key = self.queue.next(), if free => self.begin(key),
            }
        }
        while let Some((_, again)) = self.under_way.next().await {
            again?;
        }
        Ok(())
    }

    fn begin(&mut self, key: Key) {
        if let Some(again) = self.busy.get_mut(&key) {
            *again = true;
            return;
        }
        self.deadlines.clear(&key);
        self.busy.insert(key.clone(), false);
        self.under_way.push(spawn_attempt(key, Arc::clone(&self.attempts)));
    }

    fn ended(&mut self, key: Key, again: Again) {
        let asked = self.busy.remove(&key).unwrap_or_default();
        if self.busy.is_empty() {
            // The burst of a cold start is not kept for the life of the process.
            self.busy.shrink_to(64);
        }
        match again {
            _ if asked => self.queue.push(key),
            Some(delay) => self.deadlines.set(key, delay),
            None => {}
        }
    }
}

/// When which object is to be reconciled although nothing changes.
#[derive(Default)]
struct Deadlines {
    queue: DelayQueue<Key>,
    of: HashMap<Key, delay_queue::Key>,
}

impl Deadlines {
    fn set(&mut self, key: Key, delay: Duration) {
        self.clear(&key);
        let place = self.queue.insert(key.clone(), delay.min(LONGEST));
        self.of.insert(key, place);
    }

    fn clear(&mut self, key: &Key) {
        if let Some(place) = self.of.remove(key) {
            self.queue.try_remove(&place);
        }
    }

    /// The next one whose time has come; nothing at once when there is none to wait for.
    async fn next(&mut self) -> Option<Key> {
        let key = self.queue.next().await?.into_inner();
        self.of.remove(&key);
        Some(key)
    }
}
