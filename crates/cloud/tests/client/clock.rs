//! Clocks for tests that do not want to wait.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use jiff::Timestamp;
use tidewaiter_kit::{Clock, SharedClock};

/// A clock on which limits never pass and every other wait is over at once: what was waited for is noted.
#[derive(Clone, Debug)]
pub struct Hurried {
    limit: Duration,
    slept: Arc<Mutex<Vec<Duration>>>,
}

impl Hurried {
    /// Waits of exactly `limit` never end: they are those of timeouts.
    pub fn new(limit: Duration) -> Self {
        Self {
            limit,
            slept: Arc::default(),
        }
    }

    pub fn shared(&self) -> SharedClock {
        Arc::new(self.clone())
    }

    /// Returns the delays so far.
    pub fn slept(&self) -> Vec<Duration> {
        self.slept.lock().unwrap().clone()
    }
}

impl Clock for Hurried {
    fn now(&self) -> Timestamp {
        "1994-11-06T08:49:00Z".parse::<Timestamp>().unwrap() + self.monotonic()
    }

    fn monotonic(&self) -> Duration {
        self.slept.lock().unwrap().iter().sum()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        if duration == self.limit {
            return pending().boxed();
        }
        let slept = Arc::clone(&self.slept);
        async move { slept.lock().unwrap().push(duration) }.boxed()
    }
}
