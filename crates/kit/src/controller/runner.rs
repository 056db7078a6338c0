//! The order of reconciles: keys in the queue at once, as far as slots are free; the others when they are due. One
//! that just failed twice is due when its pause is over.
//!
//! kube's applier would do this, but it needs a store of whole objects, keeps every reference that waits for its time
//! twice, and polls every pass that is under way whenever one of them moves: that is quadratic when all Nodes wait for
//! one response of the cloud.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::attempt::{Again, Attempts, spawn_attempt};
use super::deadlines::Deadlines;
use super::pass::Pass;
use super::pause::Pause;
use super::{ControllerError, Reconciler};
use crate::clock::SharedClock;
use crate::key::Key;
use crate::queue::Queue;

pub(super) struct Runner<R: Reconciler> {
    queue: Queue,
    attempts: Arc<Attempts<R>>,
    /// One permit for each pass that may plan and write.
    slots: Arc<Semaphore>,
    under_way: FuturesUnordered<BoxFuture<'static, (Key, Result<Again, ControllerError>)>>,
    /// The keys under way, and whether they were queued again meanwhile.
    busy: BTreeMap<Key, bool>,
    deadlines: Deadlines,
}

impl<R: Reconciler> Runner<R> {
    pub(super) fn new(queue: Queue, attempts: Arc<Attempts<R>>, concurrency: usize, clock: SharedClock) -> Self {
        Self {
            queue,
            attempts,
            slots: Arc::new(Semaphore::new(concurrency)),
            under_way: FuturesUnordered::new(),
            busy: BTreeMap::new(),
            deadlines: Deadlines::new(clock),
        }
    }

    /// Starts passes until `stop` completes, and then waits for those that are under way.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>, pause: &Pause) -> Result<(), ControllerError> {
        let mut stop = pin!(stop);
        let mut ready = self.ready();
        let mut paused = pause.is_paused();
        loop {
            tokio::select! {
                biased;
                () = stop.as_mut() => break,
                () = pause.until(!paused) => paused = !paused,
                Some((key, again)) = self.under_way.next() => self.ended(key, again?),
                key = self.deadlines.next() => self.queue.push(key),
                slot = &mut ready, if !paused => {
                    if let (Some(key), Ok(slot)) = (self.queue.try_next(), slot) {
                        self.begin(Pass::new(key, Arc::clone(&self.slots), slot));
                    }
                    ready = self.ready();
                }
            }
        }
        while let Some((_, again)) = self.under_way.next().await {
            again?;
        }
        Ok(())
    }

    /// Completes with a slot when a key waits. It takes the slot only then, so that an idle runner holds none, and is
    /// awaited until it completes, so that it keeps its place among the passes that wait for a slot.
    fn ready(&self) -> BoxFuture<'static, Result<OwnedSemaphorePermit, AcquireError>> {
        let (queue, slots) = (self.queue.clone(), Arc::clone(&self.slots));
        async move {
            queue.filled().await;
            slots.acquire_owned().await
        }
        .boxed()
    }

    fn begin(&mut self, pass: Pass) {
        if let Some(again) = self.busy.get_mut(pass.key()) {
            *again = true;
            return;
        }
        if let Some(pause) = self.attempts.pause(pass.key()) {
            self.deadlines.set(pass.key().clone(), pause);
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
