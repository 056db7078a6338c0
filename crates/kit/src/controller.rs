//! Runs a reconciler: every change of an object and every push into its queue leads to a reconcile of its newest state.
//!
//! Never two reconciles of one object at once, never more than the given number in all, never one before this replica
//! leads. Errors are retried as they ask, for each object apart. A reconciler never watches, sleeps, retries, counts or
//! spawns by itself.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Kit;
use crate::backoff::Backoff;
use crate::cache::{Cache, Cacheable};
use crate::events::Events;
use crate::key::Key;
use crate::leader::Leadership;
use crate::queue::Queue;
use crate::retry::{Next, ReconcileError};

mod attempt;
mod runner;
mod single;
#[cfg(test)]
mod tests;

use attempt::Attempts;
use runner::Runner;
pub use single::{Single, run_single};

/// Makes true for one object what should be true for it.
pub trait Reconciler: Send + Sync + 'static {
    /// Names the controller in metrics, logs and spans: one lower-case word.
    const NAME: &'static str;
    /// The kind that it reconciles.
    type Object: Cacheable;
    /// What can go wrong.
    type Error: ReconcileError;

    /// Observe, plan, apply, status: idempotent, and right whatever the last one left undone. It may be dropped at any await
    /// when the process stops.
    fn reconcile(&self, object: Arc<Self::Object>) -> impl Future<Output = Result<Next, Self::Error>> + Send;

    /// The object of this name is gone; drop what was kept for it. An object that was deleted and created again may be
    /// reconciled without this call in between: what must not outlive an object is kept by its uid, and dropped when the
    /// cache says [`Change::Deleted`](crate::Change::Deleted).
    fn forget(&self, _gone: &Key) {}
}

/// What a controller needs around it.
#[derive(Clone, Debug)]
pub struct ControllerContext {
    /// Clock, metrics and checks.
    pub kit: Kit,
    /// No reconcile begins before this replica leads.
    pub leadership: Leadership,
    /// Where notices go.
    pub events: Events,
    /// When cancelled no reconcile begins any more.
    pub shutdown: CancellationToken,
}

/// How a controller runs.
#[derive(Clone, Copy, Debug)]
pub struct ControllerOptions {
    /// How many reconciles may be under way at once, including those that only wait; 0 is no limit.
    pub concurrency: u16,
    /// How long [`Retry::Backoff`](crate::Retry::Backoff) waits.
    pub backoff: Backoff,
}

impl Default for ControllerOptions {
    fn default() -> Self {
        Self {
            concurrency: 16,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_mins(2)),
        }
    }
}

/// Why a controller ended without having been told to.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A reconcile panicked.
    #[error("the reconcile of {object} by the controller {controller} panicked: {message}")]
    Panicked {
        /// The controller's name.
        controller: &'static str,
        /// The object's kind and name.
        object: String,
        /// The panic's message.
        message: String,
    },
    /// The stream of reconciles ended: the cache behind it is gone.
    #[error("the controller {0} has nothing to reconcile from any more")]
    Ended(&'static str),
}

/// Reconciles the objects of `cache` that come through `queue`, until shutdown.
///
/// A request for an object whose reconcile is under way is held until that has ended, and a request for one that waits for its
/// retry is served at once in its place.
///
/// # Errors
/// When a reconcile panicked, or the cache is gone.
pub async fn run_controller<R: Reconciler>(
    reconciler: Arc<R>,
    cache: Cache<R::Object>,
    queue: Queue,
    context: ControllerContext,
    options: ControllerOptions,
) -> Result<(), ControllerError> {
    let shutdown = context.shutdown.clone();
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        () = context.leadership.acquired() => {}
    }
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return Ok(()),
        synced = cache.synced() => synced.map_err(|_| ControllerError::Ended(R::NAME))?,
    }
    // The Lease is not given back while this controller still finishes what it began.
    let _work = context.leadership.begin_work();
    let attempts = Arc::new(Attempts::new(reconciler, cache, context, options.backoff));
    Runner::new(queue, attempts, options.concurrency).run(&shutdown).await
}
