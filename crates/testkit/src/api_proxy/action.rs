//! The proxy's actions on a request.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::watch;

/// The action on one request.
pub enum Action {
    /// Pass it on, and its answer back.
    Forward,
    /// Pass it on when the gate opens. A client that gives up meanwhile takes its request with it.
    Hold(Gate),
    /// Close the connection; the API server never sees it.
    Drop,
    /// Answer it here; the API server never sees it.
    Reply {
        /// The HTTP status.
        status: u16,
        /// The body, sent as JSON.
        body: String,
    },
    /// Pass it on, do this when the API server has answered, then pass the answer back.
    ForwardThen(Box<dyn FnOnce() + Send>),
    /// Pass it on, and close the connection when the API server has answered: done, but the client cannot know.
    LoseAnswer,
}

impl Action {
    /// Pass it on, do this when the API server has answered, then pass the answer back.
    #[must_use]
    pub fn forward_then(then: impl FnOnce() + Send + 'static) -> Self {
        Self::ForwardThen(Box::new(then))
    }

    /// Answer with an API `Status` of this code and reason.
    #[must_use]
    pub fn refuse(status: u16, reason: &str, message: &str) -> Self {
        Self::Reply {
            status,
            body: failure(status, reason, message).to_string(),
        }
    }
}

/// A `metav1.Status` that tells of a failure.
pub(super) fn failure(code: u16, reason: &str, message: &str) -> serde_json::Value {
    serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": code, "reason": reason, "message": message,
    })
}

impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward => f.write_str("Forward"),
            Self::Hold(gate) => f.debug_tuple("Hold").field(gate).finish(),
            Self::Drop => f.write_str("Drop"),
            Self::Reply { status, .. } => f.debug_struct("Reply").field("status", status).finish_non_exhaustive(),
            Self::ForwardThen(_) => f.write_str("ForwardThen"),
            Self::LoseAnswer => f.write_str("LoseAnswer"),
        }
    }
}

/// On which side of a request's effect something happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The API server has not seen the request and never will.
    Before,
    /// The API server has answered; the client has not learned it and never will.
    After,
}

/// Holds requests until it is opened; clones are the same gate.
#[derive(Clone, Debug)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
    held: Arc<AtomicUsize>,
}

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self {
            open: Arc::new(watch::Sender::new(false)),
            held: Arc::default(),
        }
    }

    /// Lets all held requests go, and all later ones.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Returns the number of requests that it holds now.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held.load(Ordering::SeqCst)
    }

    pub(super) async fn pass(&self) {
        let _held = Held::count(&self.held);
        let mut open = self.open.subscribe();
        open.wait_for(|open| *open)
            .await
            .expect("the gate that is waited at exists");
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// Counts as held while it lives.
struct Held<'a>(&'a AtomicUsize);

impl<'a> Held<'a> {
    fn count(held: &'a AtomicUsize) -> Self {
        held.fetch_add(1, Ordering::SeqCst);
        Self(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}
