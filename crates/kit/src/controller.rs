//! Runs a reconciler: every key that is pushed into its queue leads to a pass over the newest state of that object.
//!
//! Never two passes over one key at once, never more than the given number that plan and write, never one before this
//! replica leads. Each failure is retried as its error says, for each key separately, and at the latest after
//! [`FLOOR`](crate::retry::FLOOR); when a failed key succeeds, all keys whose last error had the same class are
//! requeued. A reconciler never watches, sleeps, retries, counts or spawns by itself.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::Kit;
use crate::backoff::Backoff;
use crate::cache::{Cache, Cacheable, Gone};
use crate::events::Events;
use crate::key::Key;
use crate::leader::Leadership;
use crate::queue::{FirstList, Queue};
use crate::retry::{Next, ReconcileError};
use crate::tasks::Tasks;

mod attempt;
mod deadlines;
mod failing;
mod pass;
mod pause;
mod runner;
#[cfg(test)]
mod tests;

use attempt::Attempts;
pub use pass::Pass;
pub use pause::{Pause, PauseSwitch};
use runner::Runner;

/// Makes true for one key what should be true for it.
pub trait Reconciler: Send + Sync + 'static {
    /// Names the controller in metrics, logs and spans: one lower-case word.
    const NAME: &'static str;
    /// The error of a pass.
    type Error: ReconcileError;

    /// Observes, plans, applies and reports for the object of this key, or for its absence: a deletion is a pass that
    /// finds no object. It is idempotent, correct whatever the last pass left undone, and may be dropped at any await
    /// when the process stops.
    fn reconcile(&self, pass: &mut Pass) -> impl Future<Output = Result<Next, Self::Error>> + Send;
}

/// The context of a controller.
#[derive(Clone, Debug)]
pub struct ControllerContext {
    /// Clock, metrics and checks.
    pub kit: Kit,
    /// No pass starts before this replica leads.
    pub leadership: Leadership,
    /// The publisher of notices.
    pub events: Events,
    /// No pass starts while it pauses. Keys that are queued meanwhile are reconciled afterwards.
    pub pause: Pause,
    /// When cancelled, no pass starts any more.
    pub shutdown: CancellationToken,
}

/// The reason why a controller ended without having been told to.
#[derive(Debug, thiserror::Error)]
pub enum ControllerError {
    /// A pass panicked.
    #[error("the reconcile of {key} by the controller {controller} panicked: {message}")]
    Panicked {
        /// The controller's name.
        controller: &'static str,
        /// The object's key.
        key: Key,
        /// The panic's message.
        message: String,
    },
    /// A cache that it reads is not updated any more.
    #[error("the controller {controller} cannot read its caches")]
    Ended {
        /// The controller's name.
        controller: &'static str,
        /// The reason.
        source: Gone,
    },
}

/// A controller that has not been started.
pub struct Controller<R> {
    reconciler: Arc<R>,
    queue: Queue,
    first_lists: Vec<FirstList>,
    concurrency: usize,
    backoff: Backoff,
}

impl<R: Reconciler> Controller<R> {
    /// Reconciles the keys that come through `queue`, at most 16 at once and with a backoff of 1 s to 2 min. Waits for
    /// the first list of each cache whose trigger fills the queue.
    #[must_use]
    pub fn new(reconciler: R, queue: Queue) -> Self {
        Self::of(Arc::new(reconciler), queue)
    }

    fn of(reconciler: Arc<R>, queue: Queue) -> Self {
        queue.stand_by();
        Self {
            reconciler,
            queue,
            first_lists: Vec::new(),
            concurrency: 16,
            backoff: Backoff::new(Duration::from_secs(1), Duration::from_mins(2)),
        }
    }

    /// Waits for the first list of a cache that the reconciler reads, and none of whose triggers fills the queue.
    #[must_use]
    pub fn reads<K: Cacheable>(mut self, cache: &Cache<K>) -> Self {
        self.first_lists.push(cache.first_list());
        self
    }

    /// The number of passes that may plan and write at once. Those that wait in [`Pass::outside`] do not count.
    #[must_use]
    pub fn concurrency(self, concurrency: usize) -> Self {
        Self { concurrency, ..self }
    }

    /// The waits of [`Retry::Backoff`](crate::Retry::Backoff).
    #[must_use]
    pub fn backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }

    /// Runs it as a task of its name.
    pub fn start(self, context: ControllerContext, tasks: &mut Tasks) {
        tasks.spawn(format!("controller/{}", R::NAME), self.run(context));
    }

    /// Runs it until shutdown.
    ///
    /// # Errors
    /// When a pass panicked, or a cache is gone.
    pub async fn run(self, mut context: ControllerContext) -> Result<(), ControllerError> {
        context.events = context.events.of(R::NAME);
        let shutdown = context.shutdown.clone();
        let leadership = context.leadership.clone();
        let first_lists = self.first_lists.into_iter().chain(self.queue.first_lists());
        let prepared = async {
            for first_list in first_lists {
                if !first_list.await {
                    return Err(Gone);
                }
            }
            leadership.acquired().await;
            Ok(())
        };
        let Some(prepared) = shutdown.run_until_cancelled(prepared).await else {
            return Ok(());
        };
        prepared.map_err(|source| ControllerError::Ended {
            controller: R::NAME,
            source,
        })?;
        // The Lease is not released while this controller finishes what it began.
        let work = leadership.begin_work();
        self.queue.seed().await;
        let (clock, pause) = (Arc::clone(&context.kit.clock), context.pause.clone());
        let attempts = Arc::new(Attempts::new(
            self.reconciler,
            context,
            self.queue.clone(),
            self.backoff,
        ));
        let stop = async {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => {}
                () = leadership.ending() => {}
            }
        };
        Runner::new(self.queue, attempts, self.concurrency, clock)
            .run(stop, &pause)
            .await?;
        drop(work);
        // After a hand-over, the elector ends the process and says why.
        shutdown.cancelled().await;
        Ok(())
    }
}
