//! A readiness check: the API server responds, and permits this replica to read and write its Lease.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::chain::{Chain, EXPIRED};
use crate::client::is_fenced;
use crate::clock::SharedClock;
use crate::events::cut;

/// A refusal, and the last response, count for this time: a standby that may not write the Lease tries it only while
/// nobody holds the Lease, and cannot know when it may.
const RESPONSE_TTL: Duration = Duration::from_mins(1);

/// The longest part of a message of the API server in the error of the check, in bytes.
const MAX_MESSAGE_BYTES: usize = 600;

/// The remedy for a missing namespace.
const CREATE: &str = "Create the namespace of the Lease, or correct lease.namespace";

/// The remedy for a missing permission.
const PERMIT: &str = "Apply Tidewaiter's role from deploy/, or correct lease.namespace and lease.name";

/// The request to the API server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Verb {
    Read,
    Write,
}

impl Display for Verb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
        })
    }
}

/// Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// Namespace and name.
    lease: String,
    clock: SharedClock,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    refused: Vec<Refused>,
    /// When the API server responded last. Monotonic.
    responded: Option<Duration>,
    /// The last request, if the API server did not respond to it, and why.
    unanswered: Option<(Verb, String)>,
}

#[derive(Clone, Debug)]
struct Refused {
    verb: Verb,
    /// Monotonic.
    at: Duration,
    /// The response of the API server, with the remedy.
    message: String,
}

impl Access {
    pub(super) fn new(namespace: &str, name: &str, clock: SharedClock) -> Self {
        Self {
            lease: format!("{namespace}/{name}"),
            clock,
            state: Arc::default(),
        }
    }

    /// Stores how the API server answered. A conflict is no refusal, and neither is a failure of the server.
    pub(super) fn answered(&self, verb: Verb, error: Option<&kube::Error>) {
        let refusal = match error {
            Some(kube::Error::Api(status)) if status.code < 500 => {
                // In response to a write, 404 means that the namespace does not exist.
                let is_refusal = matches!(status.code, 401 | 403) || (status.code == 404 && verb == Verb::Write);
                is_refusal.then_some(status)
            }
            Some(error) if !is_fenced(error) => return self.unanswered(verb, Chain(error).to_string()),
            _ => None,
        };
        let at = self.clock.monotonic();
        let mut state = self.state.lock();
        (state.responded, state.unanswered) = (Some(at), None);
        state.refused.retain(|refused| refused.verb != verb);
        state.refused.extend(refusal.map(|status| Refused {
            verb,
            at,
            message: {
                let message = cut(status.message.trim_end_matches('.'), MAX_MESSAGE_BYTES);
                match status.code {
                    401 => format!("{message} ({EXPIRED})"),
                    404 => format!("{message}. {CREATE}"),
                    _ => format!("{message}. {PERMIT}"),
                }
            },
        }));
    }

    /// Stores that the API server did not respond.
    pub(super) fn unanswered(&self, verb: Verb, why: String) {
        self.state.lock().unanswered = Some((verb, why));
    }

    /// The readiness check.
    ///
    /// # Errors
    /// The refusal of the API server, and the remedy; or that it does not respond.
    pub(super) fn check(&self) -> Result<(), String> {
        let now = self.clock.monotonic();
        let counts = |at: Duration| now.saturating_sub(at) < RESPONSE_TTL;
        let state = self.state.lock();
        let refused = state.refused.iter().filter(|refused| counts(refused.at));
        if let Some(refused) = refused.min_by_key(|refused| refused.verb) {
            let Refused { verb, message, .. } = refused;
            return Err(format!("cannot {verb} the Lease {}: {message}", self.lease));
        }
        match &state.unanswered {
            Some((verb, why)) if !state.responded.is_some_and(counts) => Err(format!(
                "cannot {verb} the Lease {}: {}",
                self.lease,
                cut(why, MAX_MESSAGE_BYTES)
            )),
            _ => Ok(()),
        }
    }
}
