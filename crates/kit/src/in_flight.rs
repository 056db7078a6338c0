//! Counts what is under way, and waits until the count has a given value.

use std::sync::Arc;

use tokio::sync::watch;

/// A count that [`InFlight::enter`] increments until the returned value is dropped. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct InFlight(Arc<watch::Sender<usize>>);

/// Counts one for as long as it lives.
#[derive(Debug)]
pub(crate) struct Entered(Arc<watch::Sender<usize>>);

impl InFlight {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(0)))
    }

    pub(crate) fn enter(&self) -> Entered {
        self.0.send_modify(|count| *count += 1);
        Entered(Arc::clone(&self.0))
    }

    /// Completes when the count satisfies `enough`.
    pub(crate) async fn until(&self, enough: impl Fn(usize) -> bool) {
        // The sender lives in self, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(|count| enough(*count)).await;
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}
