//! The single writer of a process: pending writes share one commit, each in its own savepoint.
//!
//! A write is acknowledged only after its commit, and a refused one does not affect the others. The caller may be
//! dropped: its write is done completely or not at all. Each statement has a deadline, and a connection on which one did not
//! end is closed: the next writes use another.

use std::convert::Infallible;
use std::sync::Arc;

use futures::future::BoxFuture;
use sqlx::{AnyPool, Executor as _};
use tidewaiter_kit::{Chain, SharedClock};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::StoreError;
use super::deadline::{Lease, within};
use super::draft::Author;
use super::engine::Engine;
use super::feed::Feed;
use super::queue::Queue;
use super::quotas::Quotas;
use super::transaction::Transaction;
use crate::server::Error;

/// The maximum number of writes in one commit.
const BATCH: usize = 128;

/// The operations of a write.
pub(super) type Change<T> = Box<dyn for<'t> FnOnce(&'t mut Transaction) -> BoxFuture<'t, Result<T, Error>> + Send>;

/// A write with any result type.
pub(super) trait Job: Send {
    /// Applies the change. False if it was refused, so that it must be rolled back.
    fn run<'t>(&'t mut self, transaction: &'t mut Transaction) -> BoxFuture<'t, bool>;

    /// Notifies the caller, after the commit or its failure.
    fn finish(self: Box<Self>, committed: Result<(), Arc<StoreError>>);
}

/// The pending writes.
pub(super) type Jobs = Queue<Box<dyn Job>>;

impl std::fmt::Debug for dyn Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

/// See [`Job`].
pub(super) struct Waiting<T> {
    pub(super) by: Author,
    pub(super) change: Option<Change<T>>,
    pub(super) result: Option<Result<T, Error>>,
    pub(super) answer: oneshot::Sender<Result<T, Error>>,
}

impl<T: Send + 'static> Job for Waiting<T> {
    fn run<'t>(&'t mut self, transaction: &'t mut Transaction) -> BoxFuture<'t, bool> {
        Box::pin(async move {
            let Some(change) = self.change.take() else { return false };
            transaction.by = self.by.clone();
            let result = change(transaction).await;
            let keep = result.is_ok();
            if let Err(Error::Store(error)) = &result
                && error.is_of_connection()
            {
                transaction.lost = Some(Arc::clone(error));
            }
            self.result = Some(result);
            keep
        })
    }

    fn finish(self: Box<Self>, committed: Result<(), Arc<StoreError>>) {
        let result = match (self.result, committed) {
            (Some(Err(Error::Refused(refusal))), _) => Err(Error::Refused(refusal)),
            (_, Err(error)) => Err(Error::Store(error)),
            (Some(result), Ok(())) => result,
            (None, Ok(())) => Err(StoreError::Stopping.into()),
        };
        // The caller may have been dropped.
        let _ = self.answer.send(result);
    }
}

/// The task that writes.
pub struct Writer {
    pub(super) engine: Arc<dyn Engine>,
    pub(super) pool: AnyPool,
    pub(super) jobs: Arc<Jobs>,
    pub(super) feed: Arc<Feed>,
    pub(super) health: Arc<super::Health>,
    pub(super) clock: SharedClock,
    pub(super) quotas: Arc<Quotas>,
    /// The connection of the last successful commit.
    pub(super) kept: Option<Lease>,
}

impl Writer {
    /// The same with these quotas.
    #[must_use]
    pub fn with_quotas(self, quotas: Quotas) -> Self {
        Self {
            quotas: Arc::new(quotas),
            ..self
        }
    }

    /// Writes until `shutdown`, and then completes the pending writes.
    ///
    /// # Errors
    /// None: a failed write is reported to its caller, and later ones retry.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), Infallible> {
        let jobs = Arc::clone(&self.jobs);
        loop {
            let taken = tokio::select! {
                taken = jobs.take(BATCH) => taken,
                () = shutdown.cancelled() => {
                    jobs.close();
                    jobs.take(BATCH).await
                }
            };
            let Some(mut batch) = taken else { return Ok(()) };
            let committed = self.commit(&mut batch).await;
            if let Err(error) = &committed {
                self.health.failed(error);
                error!(error = %Chain(error.as_ref()), "no change was written");
            }
            for job in batch {
                job.finish(committed.clone());
            }
        }
    }

    async fn commit(&mut self, batch: &mut [Box<dyn Job>]) -> Result<(), Arc<StoreError>> {
        let mut transaction = self.begin().await.map_err(Arc::new)?;
        let begun = transaction.sequence;
        // Dropping the connection rolls back everything on it.
        fill(&*self.engine, &mut transaction, batch, begun).await?;
        let Transaction { connection, notes, .. } = transaction;
        self.kept = Some(connection);
        // The changes of other replicas since the last commit have smaller numbers and are published first.
        if self.feed.latest() < begun
            && let Err(error) = super::catch_up(&self.pool, &self.feed).await
        {
            error!(error = %Chain(&error), "cannot read the changes of other replicas");
            self.feed.set_deaf(true);
        }
        self.feed.publish(&notes);
        Ok(())
    }

    async fn begin(&mut self) -> Result<Transaction, StoreError> {
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
        within(connection.execute(self.engine.begin())).await?;
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
            quotas: Arc::clone(&self.quotas),
        })
    }
}

async fn fill(
    engine: &dyn Engine,
    transaction: &mut Transaction,
    batch: &mut [Box<dyn Job>],
    begun: i64,
) -> Result<(), Arc<StoreError>> {
    for job in batch {
        let (sequence, notes) = (transaction.sequence, transaction.notes.len());
        transaction.say("SAVEPOINT job").await?;
        if job.run(transaction).await {
            transaction.say("RELEASE SAVEPOINT job").await?;
        } else {
            if let Some(error) = transaction.lost.take() {
                return Err(error);
            }
            transaction.say("ROLLBACK TO SAVEPOINT job").await?;
            transaction.say("RELEASE SAVEPOINT job").await?;
            transaction.sequence = sequence;
            transaction.notes.truncate(notes);
        }
    }
    if transaction.sequence == begun && !transaction.silent {
        return transaction.say("ROLLBACK").await.map_err(Arc::new);
    }
    let counted = sqlx::query("UPDATE sequence SET value = $1 WHERE one = 1").bind(transaction.sequence);
    within(counted.execute(&mut *transaction.connection)).await?;
    if let Some(announce) = engine.announce() {
        transaction.say(announce).await?;
    }
    transaction.say("COMMIT").await.map_err(Arc::new)
}
