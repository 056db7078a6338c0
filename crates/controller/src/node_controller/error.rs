//! Why a pass over a Node did not end as it should, and what could help.

use tidewaiter_api::InvalidValue;
use tidewaiter_identity::Refusal;
use tidewaiter_kit::{Notice, ReconcileError, Retry, WriteError};
use tidewaiter_kops::DefinitionError;

/// A pass that has to be repeated.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The Node's own name or uid is malformed; no API server has such a Node.
    #[error("the Node cannot be read")]
    Unreadable(#[from] InvalidValue),
    /// The cloud could not be asked.
    #[error("the cloud cannot be asked")]
    Cloud(#[source] Refusal),
    /// The definition of the Node's group is not available.
    #[error("the Node is identified, but the definition of its group is not available")]
    Undefined(#[source] DefinitionError),
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl ReconcileError for NodeError {
    fn retry(&self) -> Retry {
        match self {
            Self::Unreadable(_) => Retry::Slow,
            Self::Cloud(_) | Self::Undefined(_) => Retry::Backoff,
            Self::Write(error) => error.retry(),
        }
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::Cloud(_) => "cloud",
            Self::Undefined(_) => "definition",
            Self::Write(error) => error.class(),
        }
    }

    /// The plan has reported the rest already.
    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Write(error) => error.notice(),
            Self::Unreadable(_) | Self::Cloud(_) | Self::Undefined(_) => None,
        }
    }
}
