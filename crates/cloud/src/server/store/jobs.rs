//! The pending writes, and the closures that callers write with.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::oneshot;

use super::draft::Author;
use super::error::StoreError;
use super::queue::Queue;
use super::transaction::Transaction;
use crate::server::Error;
use crate::server::refusal::Refusal;

/// The budget of what the server does itself, in small steps: refused, it would be tried again and again.
pub(super) const UNLIMITED: Duration = Duration::MAX;
/// The budget of a write of a caller, because all others wait for it. Checked before each of its statements, which have
/// a deadline of their own. Unoptimized, the same work takes about ten times as long.
pub(super) const BUDGET: Duration = Duration::from_secs(if cfg!(debug_assertions) { 20 } else { 2 });

/// The operations of a write: an asynchronous closure whose future is `Send`, which the bound `AsyncFnOnce` cannot
/// state.
pub trait Change<'t, T>: FnOnce(&'t mut Transaction) -> Self::Running + Send + 'static {
    /// The future.
    type Running: Future<Output = Result<T, Error>> + Send;
}

impl<'t, T, F, R> Change<'t, T> for F
where
    F: FnOnce(&'t mut Transaction) -> R + Send + 'static,
    R: Future<Output = Result<T, Error>> + Send,
{
    type Running = R;
}

/// A write with any result type.
#[async_trait]
pub(super) trait Job: Send {
    /// True if nobody waits for the result any more.
    fn is_abandoned(&self) -> bool;

    /// The time that it may take.
    fn budget(&self) -> Duration;

    /// Applies the change. False if it was refused, so that it must be rolled back.
    async fn run(&mut self, transaction: &mut Transaction) -> bool;

    /// Notifies the caller, after the commit or its failure.
    fn finish(self: Box<Self>, committed: Result<(), Arc<StoreError>>);
}

/// The pending writes.
pub(super) type Jobs = Queue<Box<dyn Job>>;

/// A write that a caller waits for.
pub(super) struct PendingWrite<T, F> {
    pub(super) by: Author,
    pub(super) change: Option<F>,
    pub(super) result: Option<Result<T, Error>>,
    pub(super) answer: oneshot::Sender<Result<T, Error>>,
}

#[async_trait]
impl<T: Send + 'static, F: for<'t> Change<'t, T>> Job for PendingWrite<T, F> {
    fn is_abandoned(&self) -> bool {
        self.answer.is_closed()
    }

    fn budget(&self) -> Duration {
        if self.by == Author::system() { UNLIMITED } else { BUDGET }
    }

    async fn run(&mut self, transaction: &mut Transaction) -> bool {
        let Some(change) = self.change.take() else { return false };
        transaction.by = self.by.clone();
        let mut result = change(transaction).await;
        if result.is_ok()
            && let Err(error) = transaction.check_growth().await
        {
            result = Err(error);
        }
        if let Err(Error::Store(error)) = &result
            && matches!(**error, StoreError::TooLong)
        {
            result = Err(too_long().into());
        }
        let keep = result.is_ok();
        if let Err(Error::Store(error)) = &result
            && error.is_of_connection()
        {
            transaction.lost = Some(Arc::clone(error));
        }
        self.result = Some(result);
        keep
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

fn too_long() -> Refusal {
    let message = format!(
        "the change was not made, because it takes longer than {BUDGET:?}: change less at once, or retry later"
    );
    Refusal::new(http::StatusCode::SERVICE_UNAVAILABLE, message)
}
