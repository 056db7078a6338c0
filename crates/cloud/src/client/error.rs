//! The ways in which a request fails, one variant for each thing that a caller can do about it.

use std::time::Duration;

use super::request::Request;
use crate::models::Failure;

/// Why there is no answer to work with. It holds neither the token nor a body.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// 401 or 403: the token is wrong, has expired, or does not allow this. Repeating it does not help.
    #[error("{request} was refused with {status}: {message}")]
    Refused {
        /// What was asked.
        request: String,
        /// 401 or 403.
        status: u16,
        /// What the server says.
        message: String,
    },
    /// 404 in the API's own words: it is gone, or it never was this caller's.
    #[error("{request}: {message}")]
    NotOurs {
        /// What was asked.
        request: String,
        /// What the server says.
        message: String,
    },
    /// It may work later, as far as this side can tell: the network, a timeout, 408, 429, 5xx, a redirect.
    #[error("{request} failed: {reason}")]
    Unavailable {
        /// What was asked.
        request: String,
        /// What happened.
        reason: String,
        /// How long the server asks to be left alone.
        retry_after: Option<Duration>,
        /// What the network says.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// An answer that is none: cut, empty, HTML, of another form. Never to be taken for an empty list.
    #[error("{request} was answered with what is no answer: {reason}")]
    Invalid {
        /// What was asked.
        request: String,
        /// What is wrong with the answer.
        reason: String,
        /// What the network says, when the answer was cut.
        #[source]
        source: Option<reqwest::Error>,
    },
    /// The server does not take what was sent: the caller must send something else.
    #[error("{request} was rejected: {}", .failure.message)]
    Rejected {
        /// What was asked.
        request: String,
        /// What the server says.
        failure: Failure,
    },
}

impl ClientError {
    pub(super) fn invalid(request: &Request, reason: impl Into<String>) -> Self {
        Self::Invalid {
            request: request.to_string(),
            reason: reason.into(),
            source: None,
        }
    }

    /// The least time after which the same request may succeed; nothing when it cannot.
    pub(super) fn retry(&self) -> Option<Duration> {
        match self {
            Self::Unavailable { retry_after, .. } => Some(retry_after.unwrap_or_default()),
            Self::Invalid { source: Some(_), .. } => Some(Duration::ZERO),
            _ => None,
        }
    }
}
