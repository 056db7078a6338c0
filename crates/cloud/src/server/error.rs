//! The error of a request.

use super::refusal::Refusal;
use super::store::StoreError;

/// A failed request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller can correct the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The caller can only retry later.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Only an operator can fix it; the caller gets no details.
    #[error("internal server error")]
    Internal(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl Error {
    pub(super) fn internal(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Internal(Box::new(error))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        Self::Store(error.into())
    }
}

impl From<crate::models::InvalidField> for Error {
    fn from(error: crate::models::InvalidField) -> Self {
        Self::Refused(error.into())
    }
}
