//! Whether the API server permits this replica to read and write its Lease: a readiness check.

use std::fmt::{self, Display};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::clock::SharedClock;
use crate::events::cut;

/// A refusal counts for this time: a standby that may not write the Lease tries it only while nobody holds the Lease, and cannot know
/// when it may.
const COUNTS: Duration = Duration::from_mins(1);

/// The most that the check repeats of what the API server said, in bytes.
const SAID: usize = 600;

/// What was asked of the API server.
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
    refused: Arc<Mutex<Vec<Refused>>>,
}

#[derive(Clone, Debug)]
struct Refused {
    verb: Verb,
    /// Monotonic.
    at: Duration,
    said: String,
}

impl Access {
    pub(super) fn new(namespace: &str, name: &str, clock: SharedClock) -> Self {
        Self {
            lease: format!("{namespace}/{name}"),
            clock,
            refused: Arc::default(),
        }
    }

    /// Stores how the API server answered. A conflict is no refusal, and neither is a failure of the server.
    pub(super) fn answered(&self, verb: Verb, error: Option<&kube::Error>) {
        let mut refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        refused.retain(|refused| refused.verb != verb);
        if let Some(kube::Error::Api(status)) = error
            // In response to a write, 404 means that the namespace does not exist.
            && (matches!(status.code, 401 | 403) || (status.code == 404 && verb == Verb::Write))
        {
            refused.push(Refused {
                verb,
                at: self.clock.monotonic(),
                said: cut(status.message.trim_end_matches('.'), SAID).to_owned(),
            });
        }
    }

    /// The readiness check.
    ///
    /// # Errors
    /// What the API server refused, and the remedy.
    pub(super) fn check(&self) -> Result<(), String> {
        let now = self.clock.monotonic();
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner);
        let counts = |refused: &&Refused| now.saturating_sub(refused.at) < COUNTS;
        let Some(Refused { verb, said, .. }) = refused.iter().filter(counts).min_by_key(|refused| refused.verb) else {
            return Ok(());
        };
        Err(format!(
            "cannot {verb} the Lease {}: {said}. Apply Tidewaiter's role from deploy/, or correct lease.namespace and lease.name",
            self.lease
        ))
    }
}
