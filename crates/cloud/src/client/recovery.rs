//! Tells those who wait after a failure that the cloud responds again.
//!
//! An outage lets every loop wait for its own backoff. The first complete list or object shows that it is over, so
//! nobody has to wait any longer.

use std::future::pending;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Remembers whether the last read, or connection of a stream, failed.
#[derive(Debug)]
pub(super) struct Availability {
    is_failing: AtomicBool,
    recovered: watch::Sender<()>,
}

impl Default for Availability {
    /// Before the first response, the cloud is not known to respond.
    fn default() -> Self {
        Self {
            is_failing: AtomicBool::new(true),
            recovered: watch::Sender::new(()),
        }
    }
}

impl Availability {
    pub(super) fn failed(&self) {
        self.is_failing.store(true, Ordering::Relaxed);
    }

    pub(super) fn succeeded(&self) {
        if self.is_failing.swap(false, Ordering::Relaxed) {
            self.recovered.send_replace(());
        }
    }

    pub(super) fn recoveries(&self) -> Recoveries {
        Recoveries(self.recovered.subscribe())
    }
}

/// Each first good response of the cloud after a failure, no matter who sent the requests. A request that fails
/// although others succeed must not wait for it more than once, because one that fails always makes every success of
/// another a recovery.
#[derive(Clone, Debug)]
pub struct Recoveries(watch::Receiver<()>);

impl Recoveries {
    /// Forgets those until now: for the beginning of a request, whose failure only a later one can end.
    pub fn forget(&mut self) {
        self.0.mark_unchanged();
    }

    /// Completes when there was one since [`Recoveries::forget`]. Cancel safe.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            // The client is gone.
            pending::<()>().await;
        }
    }
}
