//! What the kit's own tests share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::net::TcpListener;

use crate::clock::{Clock, ManualClock, SharedClock, SystemClock};
use crate::Kit;

/// A kit on the given clock.
pub(crate) fn kit_on(clock: SharedClock) -> Kit {
    Kit::new(clock).unwrap()
}

/// A kit whose time the test moves.
pub(crate) fn kit() -> (Kit, ManualClock) {
    let clock = ManualClock::default();
    (kit_on(clock.shared()), clock)
}

/// tokio's clock, which a test with `start_paused` moves by itself whenever all tasks wait.
#[derive(Clone, Debug)]
pub(crate) struct TokioClock {
    start: tokio::time::Instant,
    stopped: Arc<AtomicU64>,
}

impl TokioClock {
    #[expect(clippy::disallowed_methods, reason = "tokio's own paused clock")]
    pub(crate) fn new() -> Self {
        Self {
            start: tokio::time::Instant::now(),
            stopped: Arc::default(),
        }
    }

    pub(crate) fn shared() -> SharedClock {
        Arc::new(Self::new())
    }

    /// What SIGSTOP and SIGCONT are to a process: time has passed, and nothing ran in it.
    pub(crate) fn stopped_for(&self, time: Duration) {
        self.stopped
            .fetch_add(u64::try_from(time.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Time since the start of the test.
    pub(crate) fn elapsed(&self) -> Duration {
        self.start.elapsed() + Duration::from_millis(self.stopped.load(Ordering::SeqCst))
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH.saturating_add(self.monotonic()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        ManualClock::ORIGIN + self.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        SystemClock.sleep(duration)
    }
}

/// Serves `router` on a free port for the life of the test's runtime; gives the way to it.
pub(crate) async fn serve(router: Router) -> kube::Config {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    beside(async move { axum::serve(listener, router).await.unwrap() });
    kube::Config::new(format!("http://{address}").parse().unwrap())
}

/// Lets every other task run until all of them wait.
pub(crate) async fn settle() {
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

/// Runs `future` beside the test; ends with the test's runtime.
#[expect(clippy::disallowed_methods, reason = "it ends with the test's runtime")]
pub(crate) fn beside<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(future)
}
