//! Why a request is not granted, in words for whoever asked.

use std::fmt::Display;

use http::StatusCode;

use crate::models::{Failure, InvalidField};

/// A request that is not granted: the caller can do something about it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The status of the answer.
    pub status: StatusCode,
    /// What is wrong, and the remedy.
    pub message: String,
    /// The field that is at fault.
    pub field: Option<String>,
    /// After so many seconds it may be granted.
    pub retry_after: Option<u64>,
}

impl Refusal {
    /// With `status`, and no field.
    pub fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            field: None,
            retry_after: None,
        }
    }

    /// That there is no such thing, or none that the caller may see: the two are one answer.
    #[must_use]
    pub fn not_found() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "the object does not exist, or you may not see it",
        )
    }

    /// That the caller sees it and may not do this.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// That it goes together with something that is there already.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, message)
    }

    /// That `field` is wrong, for `reason`.
    pub fn field(field: impl Into<String>, reason: impl Display) -> Self {
        let field = field.into();
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            message: format!("{field}: {reason}"),
            field: Some(field),
            retry_after: None,
        }
    }

    /// That it is not what it was when the caller saw it.
    #[must_use]
    pub fn changed() -> Self {
        Self::new(
            StatusCode::PRECONDITION_FAILED,
            "If-Match: the object has changed; get it again and repeat the change",
        )
    }

    /// The body of the answer.
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

/// A document that was refused: 400 when it is not valid JSON at all, else 422 with the field.
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
