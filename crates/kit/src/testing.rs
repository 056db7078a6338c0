//! The fixtures that the kit's own tests share.

use std::io;
use std::sync::{Arc, Mutex};

use axum::Router;
use kube::Client;
use tokio::net::TcpListener;
use tracing::subscriber::DefaultGuard;

pub(crate) use crate::clock::SimulatedClock as TokioClock;
use crate::clock::{ManualClock, SharedClock};
use crate::events::{Events, Reporter};
use crate::{Kit, Tasks};

/// A kit on the given clock.
pub(crate) fn kit_on(clock: SharedClock) -> Kit {
    Kit::new(clock).unwrap()
}

/// A kit whose time the test moves.
pub(crate) fn kit() -> (Kit, ManualClock) {
    let clock = ManualClock::default();
    (kit_on(clock.shared()), clock)
}

/// Lines that are logged.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Collects what this thread logs, as long as the guard lives.
    pub(crate) fn collect() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let writer = lines.clone();
        let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).finish();
        (lines, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Publishes Events through `client` for the life of the test's runtime.
pub(crate) fn events(client: Client, clock: &SharedClock) -> Events {
    let reporter = Reporter {
        controller: "tidewaiter.dev/scripted".to_owned(),
        instance: "test".to_owned(),
    };
    let mut tasks = Tasks::new(Arc::clone(clock));
    let events = Events::start(client, Arc::clone(clock), reporter, &mut tasks);
    beside(tasks.run_until(std::future::pending()));
    events
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
