//! The waits of a binding, in Events and as a gauge.

use std::slice;
use std::time::Duration;

use tidewaiter_kit::metrics::{MetricsError, StateGauge};
use tidewaiter_kit::{Category, Key, Metrics, Notice, ReconcileError, Retry, SharedClock, WriteError};

use crate::controllers::rbac::notice;

/// The time that the mirror and the role controller may take with a role before its bindings report that they wait.
const A_MOMENT: Duration = Duration::from_secs(10);

/// The condition that a binding waits for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wait {
    /// The role does not exist.
    #[error("there is no role {0}")]
    Role(String),
    /// Its `ClusterRole` is not ready.
    #[error("the ClusterRole {0} is not as its role says yet")]
    ClusterRole(String),
    /// Its `ClusterRole` is held.
    #[error(
        "the ClusterRole {0} is held as another coordinator left it, and nobody else gets it: see the condition Held of CloudSync"
    )]
    Held(String),
    /// The namespace does not exist.
    #[error("there is no namespace {0}, or it is being deleted")]
    Namespace(String),
    /// The role cannot be read.
    #[error("the cluster has no role {0} that can be read, although the cloud may list it")]
    Missing(String),
}

impl Wait {
    const WORDS: [&'static str; 4] = ["held", "namespace", "role", "unknown"];

    fn word(&self) -> &'static str {
        match self {
            Self::Role(_) | Self::ClusterRole(_) => "role",
            Self::Held(_) => "held",
            Self::Namespace(_) => "namespace",
            Self::Missing(_) => "unknown",
        }
    }

    fn notice(&self) -> Option<Notice> {
        if matches!(self, Self::ClusterRole(_)) {
            // It takes a moment.
            return None;
        }
        let state = if self.keeps() {
            "Nothing changes"
        } else {
            "Nothing is bound"
        };
        let until = match self {
            Self::Held(_) => "It is bound when the role is released",
            _ => "It is bound as soon as it exists",
        };
        let note = format!("{state}: {self}. {until}.");
        Some(Notice::warning("BindingWaits", "Bind", note))
    }

    /// Returns true if what was bound before stays meanwhile.
    pub(super) fn keeps(&self) -> bool {
        matches!(self, Self::ClusterRole(_) | Self::Held(_) | Self::Missing(_))
    }
}

/// The reason why a binding is not as desired.
#[derive(Debug, thiserror::Error)]
pub(super) enum BindingError {
    #[error("the binding waits: {0}")]
    Waits(Wait),
    /// Finalizers of others keep what was deleted.
    #[error("finalizers of others keep {}", .0.join(", "))]
    Kept(Vec<String>),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl BindingError {
    /// The foreign object that has the name of the binding.
    pub(super) fn foreign(&self) -> Option<&Key> {
        match self {
            Self::Write(error) if error.is_foreign() => Some(error.key()),
            Self::Waits(_) | Self::Kept(_) | Self::Write(_) => None,
        }
    }
}

impl ReconcileError for BindingError {
    fn category(&self) -> Category {
        match self {
            // Its arrival starts a pass.
            Self::Waits(wait) => Category::refusal(wait.word(), Retry::Slow).notify(wait.notice()),
            Self::Kept(kept) => {
                let note = format!(
                    "Finalizers of others keep what is deleted: {}. It gives nobody anything any more. Let whoever set the finalizers remove them.",
                    kept.join(", ")
                );
                Category::refusal("finalizer", Retry::Slow).notify(Notice::warning("DeletionBlocked", "Unbind", note))
            }
            Self::Write(error) => {
                let is_within = error.key().namespace().is_some();
                let kind = if is_within { "rolebinding" } else { "clusterrolebinding" };
                error.category().notify(notice(error, kind))
            }
        }
    }
}

/// The bindings that wait, as a gauge.
pub(super) struct Waiting {
    /// The condition that each waits for, and since when (monotonic).
    all: StateGauge<(&'static str, Duration)>,
    clock: SharedClock,
}

impl Waiting {
    pub(super) fn new(metrics: &Metrics, clock: SharedClock) -> Result<Self, MetricsError> {
        let waiting = [
            "tidewaiter_role_bindings_waiting",
            "Role bindings of the cloud that are not bound, by what they wait for: role, namespace, unknown (a role that the cloud may list cannot be read in the cluster), held (a role that is held as another coordinator left it).",
            "for",
        ];
        Ok(Self {
            all: StateGauge::new(metrics, waiting, Wait::WORDS, |(word, _)| slice::from_ref(word))?,
            clock,
        })
    }

    pub(super) fn set(&self, key: &Key, wait: Option<&Wait>) {
        let since = self.since(key).unwrap_or_else(|| self.clock.monotonic());
        self.all.set(key, wait.map(|wait| (wait.word(), since)));
    }

    fn since(&self, key: &Key) -> Option<Duration> {
        self.all.read(|all| all.get(key).map(|(_, since)| *since))
    }

    /// Returns true if it has waited for a moment only, as each binding does that arrives before its role.
    pub(super) fn has_just_begun(&self, key: &Key) -> bool {
        let now = self.clock.monotonic();
        self.since(key).is_some_and(|since| now < since + A_MOMENT)
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_kit::ManualClock;

    use super::*;

    #[test]
    fn what_waits_for_a_moment_only_has_just_begun() {
        let clock = ManualClock::default();
        let waiting = Waiting::new(&Metrics::new(&clock.shared()).unwrap(), clock.shared()).unwrap();
        let (key, wait) = (Key::new("binding"), Wait::Missing("role".to_owned()));
        assert!(!waiting.has_just_begun(&key));
        waiting.set(&key, Some(&wait));
        clock.advance(A_MOMENT / 2);
        // Still waiting, for something else.
        waiting.set(&key, Some(&Wait::ClusterRole("role".to_owned())));
        assert!(waiting.has_just_begun(&key));
        clock.advance(A_MOMENT / 2);
        waiting.set(&key, Some(&wait));
        assert!(!waiting.has_just_begun(&key));
        // It was bound, and waits again.
        waiting.set(&key, None);
        waiting.set(&key, Some(&wait));
        assert!(waiting.has_just_begun(&key));
    }
}
