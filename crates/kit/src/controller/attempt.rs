//! One reconcile from start to end: its span, its numbers, its Event, and when the next one comes.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::Resource;
use tokio_util::task::AbortOnDropHandle;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug, info_span, warn};

use super::{ControllerContext, ControllerError, Reconciler};
use crate::backoff::{Backoff, Backoffs};
use crate::cache::Cache;
use crate::chain::Chain;
use crate::key::Key;
use crate::retry::{Next, ReconcileError as _, Retry};
use crate::tasks::panic_message;

/// When to reconcile an object again although nothing changes; never, when there is nothing in it.
pub(super) type Again = Option<Duration>;

/// What the reconciles of one controller share.
pub(super) struct Attempts<R: Reconciler> {
    reconciler: Arc<R>,
    cache: Cache<R::Object>,
    context: ControllerContext,
    backoffs: Backoffs<Key>,
}

impl<R: Reconciler> Attempts<R> {
    pub(super) fn new(
        reconciler: Arc<R>,
        cache: Cache<R::Object>,
        context: ControllerContext,
        backoff: Backoff,
    ) -> Self {
        Self {
            reconciler,
            cache,
            context,
            backoffs: Backoffs::new(backoff),
        }
    }

    /// Reconciles the newest state of the object. Holds none while the reconcile waits for something: thousands may wait at once.
    async fn run(&self, key: &Key) -> Again {
        let Some(object) = self.cache.get(key) else {
            self.backoffs.forget(key);
            self.reconciler.forget(key);
            return None;
        };
        let ControllerContext { kit, leadership, .. } = &self.context;
        if !leadership.is_leader() {
            // The process is about to exit: nothing that this reconcile finds out could be written.
            return None;
        }
        let uid = object.meta().uid.clone();
        let start = kit.clock.monotonic();
        let result = self.reconciler.reconcile(object).await;
        let took = kit.clock.monotonic().saturating_sub(start);
        kit.metrics
            .reconciled(R::NAME, took, result.as_ref().map(drop).map_err(R::Error::class));
        match result {
            Ok(next) => {
                self.backoffs.reset(key);
                kit.metrics.succeeded(R::NAME, kit.clock.now());
                debug!(?next, "reconciled");
                match next {
                    Next::UntilChanged => None,
                    Next::After(delay) => Some(delay),
                }
            }
            Err(error) => self.failed(key, uid.as_deref(), &error),
        }
    }

    fn failed(&self, key: &Key, uid: Option<&str>, error: &R::Error) -> Again {
        Span::current().record("otel.status_code", "ERROR");
        if !self.context.leadership.is_leader() {
            debug!(class = error.class(), error = %Chain(error), "reconcile failed: no longer the leader");
            return None;
        }
        let delay = match error.retry() {
            Retry::UntilChanged => None,
            Retry::After(delay) => Some(delay),
            Retry::Backoff => Some(self.backoffs.next(key)),
        };
        let retry_ms = delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        warn!(class = error.class(), retry_ms, error = %Chain(error), "reconcile failed");
        if let Some(notice) = error.notice()
            && let Some(object) = self.cache.get(key)
            // One that was made again under the name has nothing to do with it.
            && object.meta().uid.as_deref() == uid
        {
            self.context.events.publish(&object.object_ref(&()), notice);
        }
        delay
    }
}

/// Runs the reconcile in a task of its own: thousands may be under way, and each is polled only when it moves.
#[expect(
    clippy::disallowed_methods,
    reason = "the runner awaits the handle, and a panic ends the controller"
)]
pub(super) fn spawn_attempt<R: Reconciler>(
    key: Key,
    attempts: Arc<Attempts<R>>,
) -> BoxFuture<'static, (Key, Result<Again, ControllerError>)> {
    let span = info_span!(parent: None, "reconcile", controller = R::NAME, object = %key, otel.status_code = Empty);
    let reconciled = key.clone();
    let attempt = async move { attempts.run(&reconciled).await }.instrument(span);
    let handle = AbortOnDropHandle::new(tokio::spawn(attempt));
    async move {
        let again = handle.await.map_err(|error| ControllerError::Panicked {
            controller: R::NAME,
            object: format!("{} {key}", R::Object::kind(&())),
            message: panic_message(error),
        });
        (key, again)
    }
    .boxed()
}
