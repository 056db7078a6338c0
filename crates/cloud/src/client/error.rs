//! The errors of a request, one variant for each possible reaction of a caller.

use std::time::Duration;

use tidewaiter_kit::Chain;
use tidewaiter_kit::chain::{Untrusted, untrusted};

use super::request::Request;
use crate::models::Failure;

/// The beginning of the message of a 401 for a user whose access has ended: another login does not help.
pub(crate) const ACCESS_ENDED: &str = "your access ended";

/// The reason why there is no usable response. Contains neither the token nor a body.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// 401 or 403: the token is invalid, expired, or lacks the permission. A retry does not help.
    #[error("{request} was refused with {status}: {message}")]
    Refused {
        request: String,
        status: u16,
        message: String,
    },
    /// 404 in the API's format: the object does not exist, or this caller may not see it.
    #[error("{request}: {message}")]
    NotOurs { request: String, message: String },
    /// A retry may succeed: the network, a timeout, 408, 429 or 5xx.
    #[error("{request} failed: {reason}")]
    Unavailable {
        request: String,
        reason: String,
        retry_after: Option<Duration>,
        #[source]
        source: Option<reqwest::Error>,
    },
    /// An invalid response: truncated, empty, HTML, a redirect, or of another format. It must never be treated as an
    /// empty list.
    #[error("{request} got an invalid response: {reason}")]
    Invalid {
        request: String,
        reason: String,
        #[source]
        source: Option<reqwest::Error>,
    },
    /// The server rejects the request: the caller must change it.
    #[error("{request} was rejected: {}", .failure.message)]
    Rejected { request: String, failure: Failure },
}

impl ClientError {
    pub(super) fn invalid(request: &Request, reason: impl Into<String>) -> Self {
        Self::Invalid {
            request: request.to_string(),
            reason: reason.into(),
            source: None,
        }
    }

    /// Returns the error without the request.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::Refused { status, message, .. } => format!("refused with {status}: {message}"),
            Self::NotOurs { message, .. } => message.clone(),
            Self::Unavailable { reason, source, .. } => with_cause(reason.clone(), source.as_ref()),
            Self::Invalid { reason, source, .. } => with_cause(format!("invalid response: {reason}"), source.as_ref()),
            Self::Rejected { failure, .. } => format!("rejected: {}", failure.message),
        }
    }

    /// Returns true if the access of the user has ended.
    #[must_use]
    pub fn is_of_ended_access(&self) -> bool {
        matches!(self, Self::Refused { status: 401, message, .. } if message.starts_with(ACCESS_ENDED))
    }

    /// Returns the reason why the server's certificate cannot be verified, if that failed.
    #[must_use]
    pub fn untrusted(&self) -> Option<Untrusted> {
        let Self::Unavailable {
            source: Some(error), ..
        } = self
        else {
            return None;
        };
        untrusted(error)
    }

    /// The delay before the next request that the server asks for.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => *retry_after,
            _ => None,
        }
    }

    /// A short word for the class of the error, the label of a metric.
    #[must_use]
    pub fn class(&self) -> &'static str {
        match self {
            Self::Refused { .. } => "refused",
            Self::NotOurs { .. } => "not-found",
            Self::Unavailable { .. } => "unavailable",
            Self::Invalid { .. } => "invalid",
            Self::Rejected { .. } => "rejected",
        }
    }

    /// The minimum delay before a retry; `None` if a retry cannot succeed.
    pub(super) fn retry(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => Some(retry_after.unwrap_or_default()),
            Self::Invalid { source: Some(_), .. } => Some(Duration::ZERO),
            _ => None,
        }
    }
}

fn with_cause(reason: String, source: Option<&reqwest::Error>) -> String {
    match source {
        None => reason,
        Some(error) => format!("{reason}: {}", Chain(error)),
    }
}
