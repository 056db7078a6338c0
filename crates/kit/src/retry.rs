//! What a reconcile says about its next one: on success when to look again, on failure what could help.

use std::time::Duration;

use crate::events::Notice;

/// When to look again after a success. A change of the object is always looked at, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing but a change of the object (or a push into its queue) can make more work.
    UntilChanged,
    /// Something is due at a known time, or lies outside the cluster and is polled.
    After(Duration),
}

/// What could make a failed reconcile succeed. A change of the object is always tried, at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retry {
    /// The same input fails in the same way: only a change helps. Not retried.
    UntilChanged,
    /// The other side said when.
    After(Duration),
    /// Time may help: jittered exponential, for this object alone, never given up.
    Backoff,
}

/// The error of a reconcile: it knows what could help, its class, and what the object's owner should read.
pub trait ReconcileError: std::error::Error + Send + Sync + 'static {
    /// What could make the next attempt succeed.
    fn retry(&self) -> Retry;

    /// A short word from a small fixed set, the label of a metric.
    fn class(&self) -> &'static str;

    /// What to publish as an Event on the object, if its owner can do something about it. The same notice is published
    /// once, however often the reconcile fails.
    fn notice(&self) -> Option<Notice> {
        None
    }
}
