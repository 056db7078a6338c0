//! The single writer of a process: pending writes share one commit, each in its own savepoint.
//!
//! A write is acknowledged only after its commit, and a refused one does not affect the others. The caller may be
//! dropped: its write is done completely or not at all.

use std::convert::Infallible;
use std::sync::Arc;

use futures::future::BoxFuture;
use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyPool, Executor as _};
use tidewaiter_kit::{Chain, Clock, SharedClock};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::error;

use super::StoreError;
use super::draft::Author;
use super::engine::Engine;
use super::feed::Feed;
use super::transaction::Transaction;
use crate::server::Error;

/// The maximum number of writes in one commit.
const BATCH: usize = 128;
/// The maximum number of pending writes; more are refused at once.
pub(super) const QUEUE: usize = 1_024;

/// The operations of a write.
pub(super) type Change<T> = Box<dyn for<'t> FnOnce(&'t mut Transaction) -> BoxFuture<'t, Result<T, Error>> + Send>;

/// A write with any result type.
pub(super) trait Job: Send {
    /// Applies the change. False if it was refused, so that it must be rolled back.
    fn run<'t>(&'t mut self, transaction: &'t mut Transaction) -> BoxFuture<'t, bool>;

    /// Notifies the caller, after the commit or its failure.
    fn finish(self: Box<Self>, committed: Result<(), Arc<StoreError>>);
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
    pub(super) jobs: mpsc::Receiver<Box<dyn Job>>,
    pub(super) feed: Arc<Feed>,
    pub(super) health: Arc<super::Health>,
    pub(super) clock: SharedClock,
    /// The connection of the last successful commit.
    pub(super) kept: Option<PoolConnection<Any>>,
}

impl Writer {
    /// Writes until `shutdown`, and then completes the pending writes.
    ///
    /// # Errors
    /// None: a failed write is reported to its caller, and later ones retry.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), Infallible> {
        loop {
            let first = tokio::select! {
                job = self.jobs.recv() => job,
                () = shutdown.cancelled() => {
                    self.jobs.close();
                    self.jobs.recv().await
                }
            };
            let Some(first) = first else { return Ok(()) };
            let mut batch = vec![first];
            while batch.len() < BATCH
                && let Ok(job) = self.jobs.try_recv()
            {
                batch.push(job);
            }
            let committed = self.commit(&mut batch).await;
            self.health.wrote(&committed);
            if let Err(error) = &committed {
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
        if let Err(error) = fill(&*self.engine, &mut transaction, batch, begun).await {
            // Dropping the connection rolls back everything on it.
            transaction.connection.close_on_drop();
            return Err(Arc::new(error));
        }
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
        // A pooled connection may have been lost: then no change was written on it.
        if let Some(connection) = self.kept.take()
            && let Ok(transaction) = begin_on(&*self.engine, &*self.clock, connection).await
        {
            return Ok(transaction);
        }
        let connection = self.pool.acquire().await?;
        begin_on(&*self.engine, &*self.clock, connection).await
    }
}

async fn begin_on(
    engine: &dyn Engine,
    clock: &dyn Clock,
    mut connection: PoolConnection<Any>,
) -> Result<Transaction, StoreError> {
    let begun = async {
        connection.execute(engine.begin()).await?;
        // On PostgreSQL this row is the lock that serializes writers.
        sqlx::query_as("UPDATE sequence SET value = value WHERE one = 1 RETURNING value")
            .fetch_one(&mut *connection)
            .await
    };
    match begun.await {
        Ok((sequence,)) => Ok(Transaction {
            connection,
            sequence,
            notes: Vec::new(),
            by: Author::default(),
            now: clock.now(),
            silent: false,
        }),
        Err(error) => {
            connection.close_on_drop();
            Err(error.into())
        }
    }
}

async fn fill(
    engine: &dyn Engine,
    transaction: &mut Transaction,
    batch: &mut [Box<dyn Job>],
    begun: i64,
) -> Result<(), StoreError> {
    for job in batch {
        let (sequence, notes) = (transaction.sequence, transaction.notes.len());
        transaction.say("SAVEPOINT job").await?;
        if job.run(transaction).await {
            transaction.say("RELEASE SAVEPOINT job").await?;
        } else {
            transaction.say("ROLLBACK TO SAVEPOINT job").await?;
            transaction.say("RELEASE SAVEPOINT job").await?;
            transaction.sequence = sequence;
            transaction.notes.truncate(notes);
        }
    }
    if transaction.sequence == begun && !transaction.silent {
        return transaction.say("ROLLBACK").await;
    }
    sqlx::query("UPDATE sequence SET value = $1 WHERE one = 1")
        .bind(transaction.sequence)
        .execute(&mut *transaction.connection)
        .await?;
    if let Some(announce) = engine.announce() {
        transaction.say(announce).await?;
    }
    transaction.say("COMMIT").await
}
