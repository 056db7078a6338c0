//! The rejection of a request, with a message for the caller.

use std::fmt::Display;

use http::StatusCode;

use crate::models::{Failure, InvalidField};

/// A rejected request: the caller can correct it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The status of the response.
    pub status: StatusCode,
    /// The reason and the remedy.
    pub message: String,
    /// The invalid field.
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
        Self::new(
            StatusCode::NOT_FOUND,
            "the object does not exist, or you may not see it",
        )
    }

    /// The caller may see the object, but lacks the permission.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// The request conflicts with an existing object.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// `field` is invalid, for `reason`.
    pub fn field(field: impl Into<String>, reason: impl Display) -> Self {
        let field = field.into();
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            message: format!("{field}: {reason}"),
            field: Some(field),
            retry_after: None,
        }
    }

    /// The object has changed since the caller read it.
    #[must_use]
    pub fn changed() -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "If-Match: the object has changed; get it again and repeat the change",
        )
    }

    /// The body of the response.
    #[must_use]
    pub fn failure(&self) -> Failure {
        let field = InvalidField {
            field: self.field.clone().unwrap_or_default(),
            reason: self.message.clone(),
        };
        let mut failure = Failure::refused(u32::from(self.status.as_u16()), &field);
        failure.message = Failure::refused(
            0,
            &InvalidField {
                field: String::new(),
                reason: self.message.clone(),
            },
        )
        .message;
        failure
    }
}

/// An invalid document: 400 if it is not valid JSON, otherwise 422 with the field.
impl From<InvalidField> for Refusal {
    fn from(error: InvalidField) -> Self {
        if error.field.is_empty() {
            return Self::new(StatusCode::BAD_REQUEST, error.reason);
        }
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            message: error.to_string(),
            field: Some(error.field),
            retry_after: None,
        }
    }
}
