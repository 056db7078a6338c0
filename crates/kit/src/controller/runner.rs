//! Which key is reconciled when: those in the queue at once, as far as permits are free; the others when they are due.
//!
//! kube's applier would do this, but it needs a store of whole objects, keeps every reference that waits for its time twice, and polls
//! every pass that is under way whenever one of them moves: that is quadratic when all Nodes wait for one response of the cloud.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::attempt::{Again, Attempts, spawn_attempt};
use super::deadlines::Deadlines;
use super::pass::Pass;
use super::{ControllerError, Reconciler};
use crate::clock::SharedClock;
use crate::key::Key;
use crate::queue::Queue;

pub(super) struct Runner<R: Reconciler> {
    queue: Queue,
    attempts: Arc<Attempts<R>>,
    permits: Arc<Semaphore>,
    under_way: FuturesUnordered<BoxFuture<'static, (Key, Result<Again, ControllerError>)>>,
    /// The keys under way, and whether they were queued again meanwhile.
    busy: BTreeMap<Key, bool>,
    deadlines: Deadlines,
}

impl<R: Reconciler> Runner<R> {
    pub(super) fn new(queue: Queue, attempts: Arc<Attempts<R>>, permits: usize, clock: SharedClock) -> Self {
        Self {
            queue,
            attempts,
            permits: Arc::new(Semaphore::new(permits)),
            under_way: FuturesUnordered::new(),
            busy: BTreeMap::new(),
            deadlines: Deadlines::new(clock),
        }
    }

    /// Starts passes until `shutdown`, and then waits for those that are under way.
    pub(super) async fn run(mut self, shutdown: &CancellationToken) -> Result<(), ControllerError> {
        loop {
            let permits = Arc::clone(&self.permits);
            let queue = self.queue.clone();
            // The permit first: a key that is taken from the queue starts at once.
            let ready = async move {
                let permit = permits.acquire_owned().await;
                (queue.next().await, permit)
            };
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                Some((key, again)) = self.under_way.next() => self.ended(key, again?),
                key = self.deadlines.next() => self.queue.push(key),
                (key, permit) = ready => if let Ok(permit) = permit {
                    self.begin(Pass::new(key, Arc::clone(&self.permits), permit));
                },
            }
        }
        while let Some((_, again)) = self.under_way.next().await {
            again?;
        }
        Ok(())
    }

    fn begin(&mut self, pass: Pass) {
        if let Some(again) = self.busy.get_mut(pass.key()) {
            *again = true;
            return;
        }
        self.deadlines.clear(pass.key());
        self.busy.insert(pass.key().clone(), false);
        self.under_way.push(spawn_attempt(pass, Arc::clone(&self.attempts)));
    }

    fn ended(&mut self, key: Key, again: Again) {
        let queued = self.busy.remove(&key).unwrap_or_default();
        match again {
            _ if queued => self.queue.push(key),
            Some(delay) => self.deadlines.set(key, delay),
            None => {}
        }
    }
}
