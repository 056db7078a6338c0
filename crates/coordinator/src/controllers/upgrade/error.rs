//! The reasons why a pass over an upgrade failed.

use tidewaiter_kit::{Category, Chain, Notice, ReconcileError, Retry, WriteError};
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
    fn category(&self) -> Category {
        let notice = |reason: &'static str| Notice::warning(reason, "Upgrade", Chain(self).to_string());
        match self {
            Self::Unanswered(error) => Category::new("version", Retry::of(error)),
            Self::Health(error) => Category::new("health", Retry::of(error)).notify(notice("HealthUnknown")),
            Self::Agents(error) => Category::new("agents", Retry::of(error)).notify(notice("AgentsUnknown")),
            Self::Drain(error) => Category::new("drain", Retry::of(error)).notify(notice("DrainFailed")),
            Self::Version(_) => Category::new("version", Retry::Slow),
            Self::Write(error) => error.category(),
        }
    }
}
