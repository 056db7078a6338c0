//! hyper's timers on the clock of the kit.

use std::fmt::{self, Debug};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use hyper::rt::{Sleep, Timer};
use parking_lot::Mutex;

use crate::clock::SharedClock;

/// Measures hyper's time limits on the monotonic time of a clock.
#[derive(Clone)]
pub(super) struct ClockTimer {
    /// The start of the monotonic time, in hyper's type. Only differences count.
    origin: Instant,
    clock: SharedClock,
}

impl ClockTimer {
    #[expect(clippy::disallowed_methods, reason = "hyper's type for time; only differences count")]
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            origin: Instant::now(),
            clock,
        }
    }
}

impl Debug for ClockTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClockTimer").field(&self.clock).finish()
    }
}

impl Timer for ClockTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(ClockSleep(Mutex::new(self.clock.sleep(duration))))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.sleep(deadline.saturating_duration_since(self.now()))
    }

    fn now(&self) -> Instant {
        self.origin + self.clock.monotonic()
    }
}

/// hyper wants it to be `Sync`, which a mutex is.
struct ClockSleep(Mutex<BoxFuture<'static, ()>>);

impl Future for ClockSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_mut();
        sleep.as_mut().poll(context)
    }
}

impl Sleep for ClockSleep {}
