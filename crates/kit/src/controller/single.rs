//! Runs a reconciler of one thing: what there is exactly one of in a cluster, and which nobody but us makes.
//!
//! As [`run_controller`](super::run_controller), but there is no object whose change leads to a reconcile: whoever knows of a
//! reason wakes it. Never two reconciles at once, none before this replica leads, and none that a wake-up asked for is lost.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tracing::field::Empty;
use tracing::{Instrument as _, Span, debug, info_span, warn};

use super::ControllerContext;
use crate::backoff::{Backoff, Backoffs};
use crate::chain::Chain;
use crate::retry::{Next, ReconcileError, Retry};

/// Makes true for the cluster as a whole what should be true for it.
pub trait Single: Send + Sync + 'static {
    /// Names the controller in metrics, logs and spans: one lower-case word.
    const NAME: &'static str;
    /// What can go wrong.
    type Error: ReconcileError;

    /// As [`Reconciler::reconcile`](super::Reconciler::reconcile).
    fn reconcile(&self) -> impl Future<Output = Result<Next, Self::Error>> + Send;
}

/// Reconciles once when this replica leads, then whenever `wake` is notified or the last reconcile asked for it, until
/// shutdown.
pub async fn run_single<S: Single>(single: Arc<S>, wake: Arc<Notify>, context: ControllerContext, backoff: Backoff) {
    let ControllerContext {
        kit,
        leadership,
        shutdown,
        ..
    } = context;
    tokio::select! {
        biased;
        () = shutdown.cancelled() => return,
        () = leadership.acquired() => {}
    }
    // The Lease is not given back while this controller still finishes what it began.
    let _work = leadership.begin_work();
    let backoffs = Backoffs::new(backoff);
    while !shutdown.is_cancelled() {
        let span = info_span!(parent: None, "reconcile", controller = S::NAME, otel.status_code = Empty);
        let attempt = async {
            let start = kit.clock.monotonic();
            let result = single.reconcile().await;
            let took = kit.clock.monotonic().saturating_sub(start);
            kit.metrics
                .reconciled(S::NAME, took, result.as_ref().map(drop).map_err(S::Error::class));
            match result {
                Ok(next) => {
                    backoffs.reset(&());
                    kit.metrics.succeeded(S::NAME, kit.clock.now());
                    debug!(?next, "reconciled");
                    after(next)
                }
                Err(error) => {
                    Span::current().record("otel.status_code", "ERROR");
                    let delay = match error.retry() {
                        Retry::UntilChanged => None,
                        Retry::After(delay) => Some(delay),
                        Retry::Backoff => Some(backoffs.next(&())),
                    };
                    warn!(class = error.class(), ?delay, error = %Chain(&error), "reconcile failed");
                    delay
                }
            }
        };
        let again = attempt.instrument(span).await;
        let due = async {
            match again {
                Some(delay) => kit.clock.sleep(delay).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            () = shutdown.cancelled() => return,
            () = wake.notified() => {}
            () = due => {}
        }
    }
}

fn after(next: Next) -> Option<Duration> {
    match next {
        Next::UntilChanged => None,
        Next::After(delay) => Some(delay),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::clock::{ManualClock, SharedClock};
    use crate::leader::Leadership;
    use crate::testing::{self, TokioClock, beside, kit_on, settle};
    use crate::{Clock as _, SystemClock};

    #[derive(Debug, thiserror::Error)]
    #[error("refused")]
    struct Refused(Retry);

    impl ReconcileError for Refused {
        fn retry(&self) -> Retry {
            self.0
        }

        fn class(&self) -> &'static str {
            "refused"
        }
    }

    /// Answers from a script, last first, then with success; notes the whole seconds at which it was called.
    struct Scripted {
        clock: SharedClock,
        answers: Mutex<Vec<Result<Next, Refused>>>,
        calls: Mutex<Vec<u64>>,
    }

    impl Single for Scripted {
        const NAME: &'static str = "scripted";
        type Error = Refused;

        async fn reconcile(&self) -> Result<Next, Refused> {
            let at = self.clock.monotonic().saturating_sub(ManualClock::ORIGIN);
            self.calls.lock().unwrap().push(at.as_secs());
            let answer = self.answers.lock().unwrap().pop();
            answer.unwrap_or(Ok(Next::UntilChanged))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn runs_when_woken_when_due_and_after_a_failure() {
        let clock = TokioClock::shared();
        let kit = kit_on(Arc::clone(&clock));
        let leadership = Leadership::new(Arc::clone(&clock));
        let client = kube::Client::new(
            tower::service_fn(|_: http::Request<kube::client::Body>| {
                std::future::pending::<Result<http::Response<http_body_util::Empty<bytes::Bytes>>, std::io::Error>>()
            }),
            "default",
        );
        let shutdown = CancellationToken::new();
        let context = ControllerContext {
            events: testing::events(client, &clock),
            kit: kit.clone(),
            leadership: leadership.clone(),
            shutdown: shutdown.clone(),
        };
        let scripted = Arc::new(Scripted {
            clock,
            answers: Mutex::new(vec![
                Err(Refused(Retry::UntilChanged)),
                Err(Refused(Retry::Backoff)),
                Ok(Next::After(Duration::from_secs(10))),
            ]),
            calls: Mutex::default(),
        });
        let wake = Arc::new(Notify::new());
        let backoff = Backoff::new(Duration::from_secs(2), Duration::from_secs(2));
        let runs = beside(run_single(Arc::clone(&scripted), Arc::clone(&wake), context, backoff));
        wake.notify_one();
        SystemClock.sleep(Duration::from_secs(5)).await;
        assert!(scripted.calls.lock().unwrap().is_empty(), "it does not lead yet");
        leadership.lead_until(Duration::MAX);
        settle().await;
        // The wake-up from before is one too many, and harmless.
        assert_eq!(*scripted.calls.lock().unwrap(), [5, 5]);
        SystemClock.sleep(Duration::from_mins(1)).await;
        let calls = scripted.calls.lock().unwrap().clone();
        assert!(matches!(calls[..], [5, 5, 6..=7]), "{calls:?}");
        wake.notify_one();
        settle().await;
        assert_eq!(scripted.calls.lock().unwrap().len(), 4);
        assert_eq!(
            kit.metrics
                .reconcile_errors
                .with_label_values(&["scripted", "refused"])
                .get(),
            2
        );
        shutdown.cancel();
        runs.await.unwrap();
    }
}
