//! The replacement of credentials that a cloud rejects: at once, and again only after ten seconds.
//!
//! Google's libraries cache a token until it expires, for up to an hour, although it may be revoked. So a client
//! replaces its credentials as a whole when they are rejected, whatever it keeps them in.

use std::time::Duration;

use parking_lot::Mutex;

use crate::clock::SharedClock;

/// The minimum time between two renewals, whatever the cloud responds.
const MIN_RENEWAL_INTERVAL: Duration = Duration::from_secs(10);

/// The renewals of the credentials of one client.
#[derive(Debug)]
pub struct Renewals {
    clock: SharedClock,
    /// The monotonic time of the last one.
    last: Mutex<Option<Duration>>,
}

impl Renewals {
    /// No renewal yet.
    #[must_use]
    pub fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            last: Mutex::default(),
        }
    }

    /// True if credentials that were rejected just now are to be replaced; the caller does so then.
    #[must_use]
    pub fn begin(&self) -> bool {
        let now = self.clock.monotonic();
        let mut last = self.last.lock();
        let is_due = last.is_none_or(|last| now >= last + MIN_RENEWAL_INTERVAL);
        if is_due {
            *last = Some(now);
        }
        is_due
    }
}
