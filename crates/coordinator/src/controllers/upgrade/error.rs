//! The reasons why a pass over an upgrade failed.

use tidewaiter_kit::{Chain, Notice, ReconcileError, Retry, WriteError};
use tidewaiter_upgrade::InvalidVersion;

/// The reason why a pass failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum UpgradeError {
    #[error("the version of the API server cannot be read")]
    Unanswered(#[source] kube::Error),
    #[error("the health of the cluster cannot be read, which spec.policy.requireHealthy needs")]
    Health(#[source] kube::Error),
    #[error(
        "the NodeReports cannot be read (deploy/coordinator/upgrades), so no node is done, and one is upgraded at a time"
    )]
    Agents(#[source] kube::Error),
    #[error("the pods of a node cannot be read or evicted, which spec.policy.drain needs (deploy/coordinator/drain)")]
    Drain(#[source] kube::Error),
    #[error("the version of the API server is not valid")]
    Version(#[from] InvalidVersion),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl ReconcileError for UpgradeError {
    fn retry(&self) -> Retry {
        match self {
            Self::Unanswered(error) | Self::Health(error) | Self::Agents(error) | Self::Drain(error) => {
                Retry::of(error)
            }
            Self::Version(_) => Retry::Slow,
            Self::Write(error) => error.retry(),
        }
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Unanswered(_) | Self::Version(_) => "version",
            Self::Health(_) => "health",
            Self::Agents(_) => "agents",
            Self::Drain(_) => "drain",
            Self::Write(error) => error.class(),
        }
    }

    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Unanswered(_) | Self::Version(_) => None,
            Self::Drain(_) => Some(Notice::warning("DrainFailed", "Upgrade", Chain(self).to_string())),
            Self::Health(_) => Some(Notice::warning("HealthUnknown", "Upgrade", Chain(self).to_string())),
            Self::Agents(_) => Some(Notice::warning("AgentsUnknown", "Upgrade", Chain(self).to_string())),
            Self::Write(error) => error.notice(),
        }
    }
}
