//! One reconcile from start to end: its span, its numbers, its Event, and when the next one comes.

use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use kube::api::DynamicObject;
use kube::runtime::controller::Action;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt as _};
use tokio_util::task::AbortOnDropHandle;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug, info_span, warn};

use super::{ControllerContext, ControllerError, Reconciler};
use crate::backoff::{Backoff, Backoffs};
use crate::chain::Chain;
use crate::retry::{Next, ReconcileError as _, Retry};
use crate::tasks::panic_message;

/// What the reconciles of one controller share.
pub(super) struct Attempts<R: Reconciler> {
    reconciler: Arc<R>,
    context: ControllerContext,
    backoffs: Backoffs<ObjectRef<R::Object>>,
}

impl<R: Reconciler> Attempts<R> {
    pub(super) fn new(reconciler: Arc<R>, context: ControllerContext, backoff: Backoff) -> Self {
        Self {
            reconciler,
            context,
            backoffs: Backoffs::new(backoff),
        }
    }

    pub(super) fn forget(&self, gone: &ObjectRef<DynamicObject>) {
        let gone = gone.clone().into_kind_unchecked::<R::Object>(());
        self.backoffs.forget(&gone);
        self.reconciler.forget(&gone);
    }

    async fn run(&self, object: Arc<R::Object>) -> Action {
        let ControllerContext { kit, leadership, .. } = &self.context;
        if !leadership.is_leader() {
            // The process is about to exit: nothing that this reconcile finds out could be written.
            return Action::await_change();
        }
        let key = ObjectRef::from_obj(&*object);
        let start = kit.clock.monotonic();
        let result = self.reconciler.reconcile(Arc::clone(&object)).await;
        let took = kit.clock.monotonic().saturating_sub(start);
        kit.metrics
            .reconciled(R::NAME, took, result.as_ref().map(drop).map_err(R::Error::class));
        match result {
            Ok(next) => {
                self.backoffs.reset(&key);
                kit.metrics.succeeded(R::NAME, kit.clock.now());
                debug!(?next, "reconciled");
                match next {
                    Next::UntilChanged => Action::await_change(),
                    Next::After(delay) => Action::requeue(delay),
                }
            }
            Err(error) => self.failed(&object, &key, &error).await,
        }
    }

    async fn failed(&self, object: &R::Object, key: &ObjectRef<R::Object>, error: &R::Error) -> Action {
        Span::current().record("otel.status_code", "ERROR");
        if !self.context.leadership.is_leader() {
            debug!(class = error.class(), error = %Chain(error), "reconcile failed: no longer the leader");
            return Action::await_change();
        }
        let (action, delay) = match error.retry() {
            Retry::UntilChanged => (Action::await_change(), None),
            Retry::After(delay) => (Action::requeue(delay), Some(delay)),
            Retry::Backoff => {
                let delay = self.backoffs.next(key);
                (Action::requeue(delay), Some(delay))
            }
        };
        let retry_ms = delay.map(|delay| u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
        warn!(class = error.class(), retry_ms, error = %Chain(error), "reconcile failed");
        if let Some(notice) = error.notice() {
            self.context.events.publish(&object.object_ref(&()), notice).await;
        }
        action
    }
}

/// Runs the reconcile in a task of its own, so that the applier, which polls everything that is under way whenever one of
/// them moves, has a handle to poll and not the reconcile.
#[expect(
    clippy::disallowed_methods,
    reason = "the applier awaits the handle, and a panic ends the controller"
)]
pub(super) fn spawn_attempt<R: Reconciler>(
    object: Arc<R::Object>,
    attempts: Arc<Attempts<R>>,
) -> BoxFuture<'static, Result<Action, ControllerError>> {
    let name = object.name_any();
    let namespace = object.namespace();
    let span = info_span!(parent: None, "reconcile", controller = R::NAME, namespace, object = %name, otel.status_code = Empty);
    let attempt = async move { attempts.run(object).await }.instrument(span);
    let handle = AbortOnDropHandle::new(tokio::spawn(attempt));
    async move {
        handle.await.map_err(|error| ControllerError::Panicked {
            controller: R::NAME,
            object: format!("{} {name}", R::Object::kind(&())),
            message: panic_message(error),
        })
    }
    .boxed()
}
