//! The single writer of a process: pending writes share one commit, each in its own savepoint.
//!
//! A commit takes writes for a few milliseconds, or for as long as the disk or the server of the database takes for a
//! commit: so a queue that is full makes nobody else wait for long, and at most half of the time goes into commits. A
//! write that is expected to take longer than that begins a commit: so none waits in its commit for a long one.
//!
//! A write is acknowledged only after its commit, and a refused one does not affect the others. The caller may be
//! dropped: its write is done completely or not at all, and not at all if it was still pending. A write that takes too
//! long is rolled back and refused. Each statement has a deadline, and a connection on which one did not end is closed:
//! the next writes use another.

use std::collections::{BTreeSet, HashSet};
use std::convert::Infallible;
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::{AnyPool, Executor as _};
use tidewaiter_kit::{Chain, SharedClock};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::catch_up::catch_up;
use super::database::Store;
use super::deadline::{Lease, within};
use super::draft::Author;
use super::engine::Engine;
use super::error::StoreError;
use super::jobs::Job;
use super::quotas::Quotas;
use super::removal::Sweep;
use super::storage::{Growth, Storage};
use super::transaction::Transaction;

/// The maximum number of writes in one commit.
const BATCH: usize = 128;
/// The time for which a commit takes writes where commits are fast.
const FILL: Duration = Duration::from_millis(4);

/// A write, and the name of its queue.
type Queued = (String, Box<dyn Job>);

/// The task that writes.
pub struct Writer {
    pub(super) engine: Arc<dyn Engine>,
    /// The connections that write. Those of the store only read.
    pub(super) pool: AnyPool,
    pub(super) store: Store,
    pub(super) clock: SharedClock,
    /// The quotas of the kinds, unless the server sets others.
    pub(in crate::server) quotas: Arc<Quotas>,
    /// The default ones, unless the server sets others.
    pub(in crate::server) storage: Arc<Storage>,
    /// The connection of the last successful commit.
    pub(super) kept: Option<Lease>,
    /// The time that the last commit took besides its writes.
    pub(super) overhead: Duration,
    /// The queues of which a step of a removal is pending.
    pub(super) sweeping: Arc<Mutex<HashSet<String>>>,
}

impl Writer {
    /// Writes until `shutdown`, and then completes the pending writes.
    ///
    /// # Errors
    /// None: a failed write is reported to its caller, and later ones retry.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), Infallible> {
        let jobs = Arc::clone(&self.store.jobs);
        loop {
            let first = tokio::select! {
                first = jobs.first() => first,
                () = shutdown.cancelled() => {
                    jobs.close();
                    jobs.first().await
                }
            };
            let Some(first) = first else { return Ok(()) };
            if first.1.is_abandoned() {
                continue;
            }
            let mut batch = vec![first];
            let committed = self.commit(&mut batch).await;
            if let Err(error) = &committed {
                // The others would find the same, one after the other.
                batch.extend(iter::from_fn(|| jobs.next(Duration::MAX)).take(BATCH));
                self.store.health.failed(error);
                error!(error = %Chain(error.as_ref()), "no change was written");
            }
            let (unswept, committed) = match committed {
                Ok(unswept) => (unswept, Ok(())),
                Err(error) => (BTreeSet::new(), Err(error)),
            };
            for (_, job) in batch {
                job.finish(committed.clone());
            }
            for queue in unswept {
                if let Some(sweep) = Sweep::of(&queue, &self.sweeping) {
                    // If the queue is full or closed, the maintenance task resumes the removal.
                    let _ = jobs.push(&queue, Box::new(sweep));
                }
            }
        }
    }

    /// Writes the first of `batch`, and adds those that are pending.
    /// Returns the queues with removals that are not complete.
    async fn commit(&mut self, batch: &mut Vec<Queued>) -> Result<BTreeSet<String>, Arc<StoreError>> {
        let asked = self.clock.monotonic();
        let mut transaction = self.begin().await.map_err(Arc::new)?;
        let (begun, since) = (transaction.sequence, self.clock.monotonic());
        // Dropping the connection rolls back everything on it.
        self.fill(&mut transaction, batch, since).await?;
        let filled = self.clock.monotonic();
        end(&*self.engine, &mut transaction, begun).await?;
        self.overhead = since.saturating_sub(asked) + self.clock.monotonic().saturating_sub(filled);
        let Transaction {
            connection,
            notes,
            unswept,
            ..
        } = transaction;
        self.kept = Some(connection);
        // The changes of other replicas since the last commit have smaller numbers and are published first.
        if self.store.feed.latest() < begun {
            if let Err(error) = catch_up(&self.pool, &self.store.feed).await {
                error!(error = %Chain(&error), "cannot read the changes of other replicas");
                self.store.feed.set_disconnected(true);
                // Published now, these would hide those before them for good. The next commit reads both.
                return Ok(unswept);
            }
            if self.engine.statements().announce.is_none() {
                self.store.feed.set_disconnected(false);
            }
        }
        self.store.feed.publish(&notes);
        Ok(unswept)
    }

    /// Performs the first of `batch`, and then those that are due, until enough time has passed.
    async fn fill(
        &mut self,
        transaction: &mut Transaction,
        batch: &mut Vec<Queued>,
        since: Duration,
    ) -> Result<(), Arc<StoreError>> {
        let limit = FILL.max(self.overhead);
        let mut performed = 0;
        while let Some((queue, job)) = batch.get_mut(performed) {
            if !job.is_abandoned() {
                let begun = self.clock.monotonic();
                let performed = perform(transaction, &mut **job).await;
                // Also if it lost the connection: otherwise it would be the next one again.
                let took = self.clock.monotonic().saturating_sub(begun);
                self.store.jobs.spent(queue, took);
                performed?;
            }
            performed += 1;
            if performed < BATCH && self.clock.monotonic() < since + limit {
                batch.extend(self.store.jobs.next(limit));
            }
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<Transaction, StoreError> {
        self.engine.check_place()?;
        // The connection may have been lost: then no change was written on it.
        if let Some(connection) = self.kept.take()
            && let Ok(transaction) = self.begin_on(connection).await
        {
            return Ok(transaction);
        }
        let connection = Lease::of(self.pool.acquire().await?);
        self.begin_on(connection).await
    }

    async fn begin_on(&mut self, mut connection: Lease) -> Result<Transaction, StoreError> {
        within(connection.execute(self.engine.statements().begin)).await?;
        // On PostgreSQL this row is the lock that serializes writers.
        let locked = sqlx::query_as("UPDATE sequence SET value = value WHERE one = 1 RETURNING value");
        let (sequence,) = within(locked.fetch_one(&mut *connection)).await?;
        Ok(Transaction {
            connection,
            sequence,
            notes: Vec::new(),
            by: Author::default(),
            now: self.clock.now(),
            silent: false,
            lost: None,
            unswept: BTreeSet::new(),
            clock: Arc::clone(&self.clock),
            until: Duration::MAX,
            quotas: Arc::clone(&self.quotas),
            storage: Arc::clone(&self.storage),
            growth: Growth::default(),
            #[cfg(test)]
            cost: (0, 0),
        })
    }
}

async fn perform(transaction: &mut Transaction, job: &mut dyn Job) -> Result<(), Arc<StoreError>> {
    let (sequence, notes) = (transaction.sequence, transaction.notes.len());
    transaction.say("SAVEPOINT job").await?;
    transaction.until = transaction.clock.monotonic().saturating_add(job.budget());
    if job.run(transaction).await {
        transaction.say("RELEASE SAVEPOINT job").await?;
        return Ok(());
    }
    if let Some(error) = transaction.lost.take() {
        return Err(error);
    }
    transaction.say("ROLLBACK TO SAVEPOINT job").await?;
    transaction.say("RELEASE SAVEPOINT job").await?;
    transaction.sequence = sequence;
    transaction.notes.truncate(notes);
    transaction.growth.discard();
    Ok(())
}

async fn end(engine: &dyn Engine, transaction: &mut Transaction, begun: i64) -> Result<(), Arc<StoreError>> {
    if transaction.sequence == begun && !transaction.silent {
        return transaction.say("ROLLBACK").await.map_err(Arc::new);
    }
    transaction.write_growth().await?;
    let counted = sqlx::query("UPDATE sequence SET value = $1 WHERE one = 1").bind(transaction.sequence);
    within(counted.execute(&mut *transaction.connection)).await?;
    if let Some(announce) = engine.statements().announce {
        transaction.say(announce).await?;
    }
    transaction.say("COMMIT").await.map_err(Arc::new)
}

#[cfg(test)]
mod tests;
