//! The retries of failed requests to the cloud.
//!
//! Of the failures in a row, only the first request is retried by the client itself, for [`PATIENCE`], if it may be
//! repeated. The delay doubles from [`FIRST`] up to the sync interval, or is as long as the cloud requires. It ends
//! early when the cloud responds to another request after the failure: the first time after [`SHORTEST`], and later
//! after the doubled delay, so that a request which fails for a reason of its own is never sent more often than that.

use std::time::Duration;

use tidewaiter_cloud::client::{Client, Recoveries};
use tidewaiter_kit::{Backoff, SharedClock};

/// The first request is retried silently for this long. What fails longer is reported, and retried by the loop.
pub(crate) const PATIENCE: Duration = Duration::from_secs(3);

/// The longest delay after the first failure.
const FIRST: Duration = Duration::from_secs(1);

/// The delay that a response to another request ends no earlier.
const SHORTEST: Duration = Duration::from_millis(500);

/// A loop hangs when its last request ended longer ago than ten sync intervals, and than ten minutes: the cloud may ask
/// for a pause of five, and a request has to end after it.
pub(crate) fn hangs_after(interval: Duration) -> Duration {
    Duration::from_mins(10).max(interval * 10)
}

/// The failures in a row of one loop.
pub(crate) struct Retries {
    client: Client,
    backoff: Backoff,
    failures: u32,
    /// True if a recovery ended one of the delays. If the request failed all the same, it fails for a reason of its
    /// own.
    was_woken: bool,
    recoveries: Recoveries,
    clock: SharedClock,
}

impl Retries {
    pub(crate) fn new(client: &Client, interval: Duration, clock: SharedClock) -> Self {
        Self {
            client: client.clone(),
            backoff: Backoff::new(FIRST, interval.max(FIRST)),
            failures: 0,
            was_woken: false,
            recoveries: client.recoveries(),
            clock,
        }
    }

    /// The client for the next request. After a failure it sends the request once, because the loop retries it.
    pub(crate) fn client(&self) -> Client {
        let deadline = if self.failures == 0 { PATIENCE } else { Duration::ZERO };
        self.client.with_deadline(deadline)
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
        let least = if self.was_woken { delay } else { SHORTEST };
        self.clock.sleep(least).await;
        tokio::select! {
            biased;
            () = self.clock.sleep(asked.max(delay).saturating_sub(least)) => {}
            () = self.recoveries.next() => self.was_woken = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use tidewaiter_cloud::client::{ClientSettings, Listing, Path};
    use tidewaiter_cloud::models::ClusterLabel;
    use tidewaiter_kit::SimulatedClock;

    use super::*;

    const INTERVAL: Duration = Duration::from_secs(30);
    const ASKED: Duration = Duration::from_mins(5);

    struct World {
        client: Client,
        is_well: Arc<AtomicBool>,
        clock: SharedClock,
    }

    impl World {
        fn new() -> Self {
            let (clock, is_well) = (SimulatedClock::shared(), Arc::new(AtomicBool::default()));
            let settings = ClientSettings::new("https://cloud.example.com".parse().unwrap());
            let answers = Arc::clone(&is_well);
            let client = Client::new(&settings, clock.clone()).unwrap().over(move |_| {
                let status = if answers.load(Ordering::Relaxed) { 200 } else { 403 };
                let response = http::Response::builder().status(status).body("[]");
                async move { Ok(response.unwrap().into()) }
            });
            Self { client, is_well, clock }
        }

        /// A request that succeeds or fails.
        async fn request(&self, is_well: bool) {
            self.is_well.store(is_well, Ordering::Relaxed);
            let answered: Result<Listing<ClusterLabel>, _> = self.client.list(Path::new(["labels"]), None).await;
            assert_eq!(answered.is_ok(), is_well);
        }

        /// The time that a loop waits after a failure, while the cloud answers another request every second, or none.
        async fn waits(&self, retries: &mut Retries, others_are_answered: bool) -> Duration {
            retries.begin();
            self.request(false).await;
            let began = self.clock.monotonic();
            let others = async {
                loop {
                    self.clock.sleep(Duration::from_secs(1)).await;
                    if others_are_answered {
                        self.request(true).await;
                    }
                }
            };
            tokio::select! {
                () = retries.failed(ASKED) => {}
                () = others => {}
            }
            self.clock.monotonic().saturating_sub(began)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_pause_that_the_cloud_asks_for_ends_when_it_answers_others_and_no_request_is_driven_by_that() {
        let world = World::new();
        let mut retries = Retries::new(&world.client, INTERVAL, world.clock.clone());
        // The simulated clock is exact to a millisecond.
        let second = Duration::from_secs(1);
        let all = ASKED..=ASKED + second;
        let alone = world.waits(&mut retries, false).await;
        assert!(all.contains(&alone), "{alone:?}");
        let first = world.waits(&mut retries, true).await;
        assert!(first <= 2 * second, "{first:?}");
        // It fails for a reason of its own: its own delay, which doubles, is the least.
        let mut waits = Vec::new();
        for _ in 0..8 {
            waits.push(world.waits(&mut retries, true).await);
        }
        let last = waits[7];
        assert!((INTERVAL / 2..=INTERVAL + 2 * second).contains(&last), "{waits:?}");
        let alone = world.waits(&mut retries, false).await;
        assert!(all.contains(&alone), "{alone:?}");
    }
}
