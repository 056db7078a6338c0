//! When a loop that asks the cloud retries a request that failed.
//!
//! The delay doubles up to the sync interval, and is never shorter than the cloud asks for. If the cloud did not ask for it, it ends early,
//! once, when the cloud responds to another request after an outage.

use std::time::Duration;

use tidewaiter_cloud::client::{Client, Recoveries};
use tidewaiter_kit::{Backoff, SharedClock};

/// The delay after the first failure, and the shortest one after any.
const SHORTEST: Duration = Duration::from_millis(500);

/// The failures in a row of one loop.
pub(crate) struct Retries {
    backoff: Backoff,
    failures: u32,
    /// Whether a recovery ended one of the delays. If the request failed all the same, it fails for a reason of its own.
    was_woken: bool,
    recoveries: Recoveries,
    clock: SharedClock,
}

impl Retries {
    pub(crate) fn new(client: &Client, interval: Duration, clock: SharedClock) -> Self {
        Self {
            backoff: Backoff::new(SHORTEST, interval.max(SHORTEST)),
            failures: 0,
            was_woken: false,
            recoveries: client.recoveries(),
            clock,
        }
    }

    /// A request begins.
    pub(crate) fn begin(&mut self) {
        self.recoveries.forget();
    }

    /// The request succeeded.
    pub(crate) fn succeeded(&mut self) {
        (self.failures, self.was_woken) = (0, false);
    }

    /// The request failed, and the cloud asks for this pause: waits until it is to be retried.
    pub(crate) async fn failed(&mut self, asked: Duration) {
        self.failures = self.failures.saturating_add(1);
        let delay = self.backoff.delay(self.failures);
        if !asked.is_zero() || self.was_woken {
            return self.clock.sleep(asked.max(delay)).await;
        }
        self.clock.sleep(delay.min(SHORTEST)).await;
        tokio::select! {
            biased;
            () = self.clock.sleep(delay.saturating_sub(SHORTEST)) => {}
            () = self.recoveries.next() => self.was_woken = true,
        }
    }
}
