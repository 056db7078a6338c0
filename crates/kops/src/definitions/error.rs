//! The reasons why a definition is unavailable, or may be stale, because the store or a file in it cannot be read.

use std::time::Duration;

use jiff::Timestamp;
use tidewaiter_kit::Clock;

use crate::document::InvalidFile;
use crate::store::StoreError;

/// The reason why a definition was never valid, or its current version is unusable.
///
/// Every message names the file, and the field if one is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DefinitionError {
    /// The file does not exist in the state store.
    #[error("{file}: is missing from the state store ({detail})")]
    Missing {
        /// The file, below the configuration base.
        file: String,
        /// The error of the store.
        detail: String,
    },
    /// The file exists but is unusable.
    #[error(transparent)]
    Invalid(InvalidFile),
    /// Labels come from the instance's tags, and it has no such tag.
    #[error(
        "instance {instance} has no tag k8s.io/cluster-autoscaler/node-template/label/KEY of its group or role: kops update cluster sets these tags on new instances"
    )]
    Untagged {
        /// The id of the instance.
        instance: String,
    },
    /// The permission to read the file is missing.
    #[error("{file}: the state store denies access ({detail})")]
    Denied {
        /// The file, below the configuration base.
        file: String,
        /// The error of the store.
        detail: String,
    },
    /// The state store is unavailable.
    #[error("{file}: the state store does not return the file ({detail})")]
    Unavailable {
        /// The file, below the configuration base.
        file: String,
        /// Details in words.
        detail: String,
    },
}

impl DefinitionError {
    /// The file, below the configuration base; empty if the error is not about a file.
    #[must_use]
    pub fn file(&self) -> &str {
        match self {
            Self::Untagged { .. } => "",
            Self::Missing { file, .. } | Self::Denied { file, .. } | Self::Unavailable { file, .. } => file,
            Self::Invalid(invalid) => &invalid.file,
        }
    }

    /// Returns true if the problem can disappear without any change by an administrator.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. })
    }

    /// The reason in conditions, Events and metrics, in `CamelCase`.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "DefinitionMissing",
            Self::Invalid(_) => "DefinitionInvalid",
            Self::Untagged { .. } => "TagsMissing",
            Self::Denied { .. } => "DefinitionDenied",
            Self::Unavailable { .. } => "StateStoreUnavailable",
        }
    }
}

impl From<StoreError> for DefinitionError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Missing { file, detail } => Self::Missing { file, detail },
            StoreError::Denied { file, detail } => Self::Denied { file, detail },
            StoreError::Unavailable { file, detail } => Self::Unavailable { file, detail },
            StoreError::NotAFile { file, found } => Self::Invalid(InvalidFile {
                file,
                field: String::new(),
                reason: format!("is {found}, must be a file"),
            }),
            StoreError::TooLarge { file } => Self::Invalid(InvalidFile {
                file,
                field: String::new(),
                reason: "is larger than 1 MiB".to_owned(),
            }),
        }
    }
}

/// The last valid version is in use, and it is unknown whether it is still current.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The reason; names the file, or the folder of the groups.
    pub error: DefinitionError,
    /// The start of the current series of failures, for messages.
    pub since: Timestamp,
    /// The time since then, for deadlines: it does not depend on the wall clock, which may jump.
    pub age: Duration,
}

/// A point in time, on the wall clock and the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    time: Timestamp,
    monotonic: Duration,
}

impl Moment {
    pub(super) fn now(clock: &dyn Clock) -> Self {
        Self {
            time: clock.now(),
            monotonic: clock.monotonic(),
        }
    }

    pub(super) fn stale(self, error: DefinitionError, clock: &dyn Clock) -> Stale {
        Stale {
            error,
            since: self.time,
            age: clock.monotonic().saturating_sub(self.monotonic),
        }
    }
}
