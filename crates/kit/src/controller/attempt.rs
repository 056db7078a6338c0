//! One pass from start to end: its span, its metrics, its Event, and when the next one is due.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug, info_span, warn};

use super::failing::Failing;
use super::{ControllerContext, ControllerError, Pass, Reconciler};
use crate::backoff::{Backoff, Backoffs};
use crate::chain::Chain;
use crate::key::Key;
use crate::metrics::Outcome;
use crate::queue::Queue;
use crate::retry::{Category, FLOOR, Next, ReconcileError as _, Retry};
use crate::tasks::panic_message;

/// The number of objects that fail alike and are in the log; the others are logged at level debug. The metric counts
/// all of them.
const MAX_LOGGED: usize = 10;

/// The delay after which a key is requeued although nothing changes; None is never.
pub(super) type Again = Option<Duration>;

/// The state that the passes of one controller share.
pub(super) struct Attempts<R: Reconciler> {
    reconciler: Arc<R>,
    context: ControllerContext,
    queue: Queue,
    backoffs: Backoffs<Key>,
    failing: Mutex<Failing>,
}

impl<R: Reconciler> Attempts<R> {
    pub(super) fn new(reconciler: Arc<R>, context: ControllerContext, queue: Queue, backoff: Backoff) -> Self {
        Self {
            reconciler,
            context,
            queue,
            backoffs: Backoffs::new(backoff),
            failing: Mutex::default(),
        }
    }

    async fn run(&self, mut pass: Pass) -> Again {
        let ControllerContext { kit, leadership, .. } = &self.context;
        if !leadership.is_leader() {
            // Leadership that lapsed is never regained: the process is about to exit.
            return None;
        }
        let start = kit.clock.monotonic();
        let result = self.reconciler.reconcile(&mut pass).await;
        let took = kit.clock.monotonic().saturating_sub(start);
        let result = result.map_err(|error| (error.category(), error));
        let outcome = match &result {
            Ok(Next::UntilChanged | Next::After(_)) => Outcome::Ok,
            Ok(Next::Pending(_)) => Outcome::Pending,
            Ok(Next::Refused(_)) => Outcome::Refused,
            Err((category, _)) if category.is_refusal => Outcome::Refused,
            Err((category, _)) => Outcome::Error(category.class),
        };
        kit.metrics.reconciled(R::NAME, took, outcome, kit.clock.now());
        match result {
            Ok(next) => {
                debug!(?next, "reconciled");
                self.again(pass.key(), next)
            }
            Err((category, error)) => self.failed(&pass, category, &error),
        }
    }

    fn again(&self, key: &Key, next: Next) -> Again {
        match next {
            Next::UntilChanged | Next::After(_) => {
                self.backoffs.reset(key);
                for other in self.failing.lock().succeeded(key, self.context.kit.clock.monotonic()) {
                    self.queue.push(other);
                }
            }
            Next::Pending(_) => {}
            Next::Refused(_) => self.failing.lock().refused(key),
        }
        match next {
            Next::UntilChanged => None,
            Next::After(delay) | Next::Pending(delay) => Some(delay),
            Next::Refused(retry) => Some(self.wait(key, retry)),
        }
    }

    fn wait(&self, key: &Key, retry: Retry) -> Duration {
        let backoff = || self.backoffs.next(key, self.context.kit.clock.monotonic());
        match retry {
            Retry::Slow => Retry::slow(),
            Retry::After(delay) => delay.min(FLOOR),
            Retry::Backoff => backoff(),
            // Many got the same time: the backoff spreads them.
            Retry::BackoffAfter(delay) => delay.saturating_add(backoff()).min(FLOOR),
        }
    }

    /// The time for which no pass over the key starts, for whatever reason it is queued.
    pub(super) fn pause(&self, key: &Key) -> Option<Duration> {
        self.failing.lock().pause(key, self.context.kit.clock.monotonic())
    }

    fn failed(&self, pass: &Pass, category: Category, error: &R::Error) -> Again {
        let Category {
            class,
            retry,
            is_refusal,
            notice,
        } = category;
        if !is_refusal {
            Span::current().record("otel.status_code", "ERROR");
        }
        if !self.context.leadership.is_leader() {
            debug!(class, error = %Chain(error), "reconcile failed: no longer the leader");
            return None;
        }
        let delay = self.wait(pass.key(), retry);
        let retry_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        // Without an object there is no Event: the log has the note, and a refusal is logged as a failure is.
        let unpublished = notice.as_ref().filter(|_| pass.object().is_none());
        let note = unpublished.map(|notice| notice.note.as_str());
        let mut failing = self.failing.lock();
        if is_refusal && note.is_none() {
            failing.refused(pass.key());
            debug!(class, retry_ms, reason = %Chain(error), "refused");
        } else if failing.failed(pass.key(), class, self.context.kit.clock.monotonic()) <= MAX_LOGGED {
            warn!(class, retry_ms, error = %Chain(error), note, "reconcile failed");
        } else {
            debug!(class, retry_ms, error = %Chain(error), note, "reconcile failed, as many others");
        }
        drop(failing);
        if let (Some(notice), Some(object)) = (notice, pass.object()) {
            self.context.events.publish(object, notice);
        }
        Some(delay)
    }
}

/// Runs the pass in a task of its own: thousands may be under way, and each is polled only when it moves.
#[expect(
    clippy::disallowed_methods,
    reason = "the runner awaits the handle, and a panic ends the controller"
)]
pub(super) fn spawn_attempt<R: Reconciler>(
    pass: Pass,
    attempts: Arc<Attempts<R>>,
) -> BoxFuture<'static, (Key, Result<Again, ControllerError>)> {
    let key = pass.key().clone();
    let span = info_span!(parent: None, "reconcile", controller = R::NAME, object = %key, otel.status_code = Empty);
    let attempt = async move { attempts.run(pass).await }.instrument(span);
    let handle = AbortOnDropHandle::new(tokio::spawn(attempt));
    async move {
        let again = handle.await.map_err(|error| ControllerError::Panicked {
            controller: R::NAME,
            key: key.clone(),
            message: panic_message(error),
        });
        (key, again)
    }
    .boxed()
}
