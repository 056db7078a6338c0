//! The quota of calls: after a response that it is exhausted, no call is made until enough of it is available again.
//!
//! Source: "Rate Limiting" of the API reference. A project may make `RateLimit-Limit` calls an hour, of which
//! `RateLimit-Remaining` are left. They come back one by one, and at `RateLimit-Reset` (a UNIX time) all of them are
//! available. That time is compared with the `Date` of the same response, so our own clock need not be correct.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::fmt::rfc2822;
use parking_lot::Mutex;
use reqwest::header::{DATE, HeaderMap};
use tidewaiter_kit::SharedClock;

/// The maximum time without a call, whatever the headers say.
const MAX_WAIT: Duration = Duration::from_mins(1);

#[derive(Debug)]
pub(super) struct Quota {
    clock: SharedClock,
    /// No call before this (monotonic time).
    not_before: Mutex<Duration>,
    /// The number of pages of the last complete listing: fewer calls than these are of no use.
    pages: AtomicU32,
}

impl Quota {
    pub(super) fn new(clock: SharedClock) -> Self {
        Self {
            clock,
            not_before: Mutex::default(),
            pages: AtomicU32::new(1),
        }
    }

    /// Returns true if a call would be in vain.
    pub(super) fn is_exhausted(&self) -> bool {
        self.clock.monotonic() < *self.not_before.lock()
    }

    pub(super) fn note_pages(&self, pages: u32) {
        self.pages.store(pages, Ordering::Relaxed);
    }

    /// Reads the headers of a response that the quota is exhausted. Without them nothing is known.
    pub(super) fn note(&self, headers: &HeaderMap) {
        let Some(per_call) = per_call(headers) else { return };
        let wait = per_call
            .saturating_mul(self.pages.load(Ordering::Relaxed))
            .min(MAX_WAIT);
        *self.not_before.lock() = self.clock.monotonic() + wait;
    }
}

/// The time after which one more call is available.
fn per_call(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let number = |name: &str| text(name)?.trim().parse::<u32>().ok();
    let used = number("ratelimit-limit")?.checked_sub(number("ratelimit-remaining")?)?;
    let reset: i64 = text("ratelimit-reset")?.trim().parse().ok()?;
    let sent = rfc2822::parse(text(DATE.as_str())?).ok()?.timestamp().as_second();
    let all = u32::try_from(reset.checked_sub(sent)?).ok()?;
    Duration::from_secs(all.into()).checked_div(used)
}
