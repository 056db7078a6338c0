//! The errors of a pass over a Node, and their remedies.

use std::time::Duration;

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
    /// The record cannot be decoded: what it remembers of the Node is unknown, so nothing may be changed.
    #[error("the record of the Node cannot be decoded: {0}")]
    Record(String),
    /// A write failed.
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl ReconcileError for NodeError {
    fn retry(&self) -> Retry {
        match self {
            // The lookup tries again for all Nodes, and announces them when the cloud is back.
            Self::Unreadable(_) | Self::Cloud(_) => Retry::Slow,
            Self::Undefined(_) => Retry::Backoff,
            // A record that becomes as it was before, or goes, is no change to the cache.
            Self::Record(_) => Retry::After(Duration::from_secs(10)),
            Self::Write(error) => error.retry(),
        }
    }

    fn class(&self) -> &'static str {
        match self {
            Self::Unreadable(_) => "unreadable",
            Self::Cloud(_) => "cloud",
            Self::Undefined(_) => "definition",
            Self::Record(_) => "undecodable",
            Self::Write(error) => error.class(),
        }
    }

    fn is_refusal(&self) -> bool {
        matches!(self, Self::Record(_))
    }

    /// The plan has reported the rest already.
    fn notice(&self) -> Option<Notice> {
        match self {
            Self::Write(error) => error.notice(),
            Self::Record(_) => {
                let note =
                    format!("{self}. Its labels stay as they are. Correct the NodeIdentity of its name, or delete it.");
                Some(Notice::warning("RecordUndecodable", "Read", note))
            }
            Self::Unreadable(_) | Self::Cloud(_) | Self::Undefined(_) => None,
        }
    }
}
