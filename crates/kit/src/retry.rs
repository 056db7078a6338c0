//! The result of a reconcile about the next one: on success when to look again, on failure what could help.
//!
//! Nothing waits forever: the longest wait after a failure is [`FLOOR`], whatever the error says.

use std::time::Duration;

use crate::backoff::jittered;
use crate::client::retry_after;
use crate::events::Notice;

/// A failed reconcile is repeated after this time at the latest (±20 %), even if only a change of something else can
/// help: an admission policy that was corrected, or a CRD that was applied late, changes no object that a controller
/// watches.
pub const FLOOR: Duration = Duration::from_mins(5);

const FLOOR_JITTER: f64 = 0.2;

/// The result of a reconcile that did not fail. A change of what it observed always starts another one at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Everything is as it should be until something changes.
    UntilChanged,
    /// Everything is as it should be; something is due then, or lies outside the cluster and is polled.
    After(Duration),
    /// Nothing was decided yet, and nothing failed: look again then. Counted as `pending`, not as a success.
    Pending(Duration),
    /// The decision is to refuse the object, as designed. Counted as `refused`: neither a success nor an error.
    Refused(Retry),
}

/// The remedy by which a failed or refused reconcile could succeed. Of several failed writes, the greatest decides:
/// what time may help is tried, and not before the last time of a [`Retry::BackoffAfter`]. Writes have no
/// [`Retry::After`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// The same input fails in the same way, so a change is what helps. Repeated every few minutes all the same
    /// ([`FLOOR`]).
    Slow,
    /// The other side named the time.
    After(Duration),
    /// Time may help: jittered exponential backoff for this object alone.
    Backoff,
    /// [`Retry::Backoff`] that begins after this time, the `Retry-After` of the API server.
    BackoffAfter(Duration),
}

impl Retry {
    /// The retry after this error of a request that may succeed later.
    #[must_use]
    pub fn of(error: &kube::Error) -> Self {
        retry_after(error).map_or(Self::Backoff, Self::BackoffAfter)
    }

    /// The wait of [`Retry::Slow`], drawn at random.
    #[must_use]
    pub fn slow() -> Duration {
        jittered(FLOOR, FLOOR_JITTER)
    }
}

/// The class of an error of a reconcile, and what follows from it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Category {
    /// A short word from a small fixed set, the label of a metric.
    pub class: &'static str,
    /// The retry that could make the next attempt succeed.
    pub retry: Retry,
    /// True if the object is refused as designed. Counted as `refused`, as [`Next::Refused`] is.
    pub is_refusal: bool,
    /// The notice to publish as an Event on the object that the pass is about, if its owner can do something about it.
    pub notice: Option<Notice>,
}

impl Category {
    /// An error without a notice.
    #[must_use]
    pub fn new(class: &'static str, retry: Retry) -> Self {
        Self {
            class,
            retry,
            is_refusal: false,
            notice: None,
        }
    }

    /// A refusal without a notice.
    #[must_use]
    pub fn refusal(class: &'static str, retry: Retry) -> Self {
        Self {
            is_refusal: true,
            ..Self::new(class, retry)
        }
    }

    /// The category with this notice.
    #[must_use]
    pub fn notify(self, notice: impl Into<Option<Notice>>) -> Self {
        Self {
            notice: notice.into(),
            ..self
        }
    }
}

/// The error of a reconcile.
pub trait ReconcileError: std::error::Error + Send + Sync + 'static {
    /// The class of the error, and what follows from it.
    fn category(&self) -> Category;

    /// [`Category::retry`].
    fn retry(&self) -> Retry {
        self.category().retry
    }

    /// [`Category::class`].
    fn class(&self) -> &'static str {
        self.category().class
    }

    /// [`Category::is_refusal`].
    fn is_refusal(&self) -> bool {
        self.category().is_refusal
    }

    /// [`Category::notice`].
    fn notice(&self) -> Option<Notice> {
        self.category().notice
    }
}
