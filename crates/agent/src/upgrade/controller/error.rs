//! The reasons why nothing is offered, with the remedy.

use jiff::Timestamp;
use tidewaiter_kit::{Category, Chain, Notice, ReconcileError, Retry};
use tidewaiter_upgrade::signed::Untrusted;

use crate::host::HostError;
use crate::upgrade::files::FileError;
use crate::upgrade::relay::RelayError;
use crate::upgrade::trust::TrustError;

/// The reason why nothing is offered, although it is the turn of this node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpgradeError {
    #[error(transparent)]
    Relay(#[from] RelayError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Untrusted(#[from] Untrusted),
    #[error(transparent)]
    File(#[from] FileError),
    #[error("the files were not written")]
    Thread(#[source] tokio::task::JoinError),
}

impl UpgradeError {
    /// Returns true if the script is wrong, or what is pinned: a person has to change it. A file that cannot be read
    /// may be read later.
    pub(super) fn is_final(&self) -> bool {
        match self {
            Self::Trust(error) => error.is_final(),
            Self::Untrusted(error) => error.is_final(),
            Self::Relay(_) | Self::File(_) | Self::Thread(_) => false,
        }
    }

    /// From when on the signature of the script counts, if it does not yet.
    pub(super) fn not_before(&self) -> Option<Timestamp> {
        match self {
            Self::Untrusted(Untrusted::Early(time)) => Some(*time),
            _ => None,
        }
    }
}

impl From<HostError> for UpgradeError {
    fn from(error: HostError) -> Self {
        Self::File(error.into())
    }
}

impl ReconcileError for UpgradeError {
    fn category(&self) -> Category {
        let class = match self {
            Self::Relay(_) => "relay",
            Self::Trust(_) => "trust",
            Self::Untrusted(_) => "untrusted",
            Self::File(_) => "host",
            Self::Thread(_) => "thread",
        };
        let note = format!("No upgrade script runs on this node: {}.", Chain(self));
        Category::new(class, Retry::Backoff).notify(Notice::warning("UpgradeScriptRefused", "Upgrade", note))
    }
}
