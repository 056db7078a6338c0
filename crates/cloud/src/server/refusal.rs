//! The rejection of a request, with a message for the caller.

use std::fmt::Display;

use http::StatusCode;

use crate::models::{Failure, InvalidField};

/// A rejected request: the caller can correct it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    pub status: StatusCode,
    /// The reason and the remedy.
    pub message: String,
    pub field: Option<String>,
    /// The number of seconds after which a retry may succeed.
    pub retry_after: Option<u64>,
}

impl Refusal {
    /// A rejection with `status`, without a field.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            field: None,
            retry_after: None,
        }
    }

    /// The object does not exist, or the caller may not see it: both give the same response.
    #[must_use]
    pub fn not_found() -> Self {
        let message = "the object does not exist, or you may not see it";
        Self::new(StatusCode::NOT_FOUND, message)
    }

    /// The token is missing or invalid.
    #[must_use]
    pub fn unauthenticated() -> Self {
        let message = "no valid token: log in and send Authorization: JWT TOKEN";
        Self::new(StatusCode::UNAUTHORIZED, message)
    }

    /// The caller may see the object, but lacks the permission.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// The request conflicts with an existing object.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// More than a limit permits; a retry may succeed after `seconds`.
    pub fn too_many(message: impl Into<String>, seconds: u64) -> Self {
        Self {
            retry_after: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, message)
        }
    }

    /// `field` is invalid, for `reason`.
    pub fn field(field: impl Into<String>, reason: impl Display) -> Self {
        let field = field.into();
        Self {
            field: Some(field.clone()),
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, format!("{field}: {reason}"))
        }
    }

    /// `parameter` of the query or the path is invalid, for `reason`.
    pub fn parameter(parameter: impl Into<String>, reason: impl Display) -> Self {
        Self::field(parameter, reason).with_status(StatusCode::BAD_REQUEST)
    }

    /// This rejection with the status `status`.
    #[must_use]
    pub fn with_status(self, status: StatusCode) -> Self {
        Self { status, ..self }
    }

    /// The object has changed since the caller read it.
    #[must_use]
    pub fn changed() -> Self {
        let message = "If-Match: the object has changed; get it again and repeat the change";
        Self::new(StatusCode::PRECONDITION_FAILED, message)
    }

    /// The body of the response.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let refused = |field: Option<&String>| {
            let field = InvalidField {
                field: field.cloned().unwrap_or_default(),
                reason: self.message.clone(),
            };
            Failure::refused(self.status.as_u16().into(), &field)
        };
        // The message names the field already.
        Failure {
            message: refused(None).message,
            ..refused(self.field.as_ref())
        }
    }
}

/// An invalid document: 400 if it is not valid JSON, otherwise 422 with the field.
impl From<InvalidField> for Refusal {
    fn from(error: InvalidField) -> Self {
        if error.field.is_empty() {
            return Self::new(StatusCode::BAD_REQUEST, error.reason);
        }
        Self {
            message: error.to_string(),
            field: Some(error.field),
            ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, "")
        }
    }
}
