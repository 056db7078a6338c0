//! The error of a request.

use std::sync::Arc;

use super::refusal::Refusal;
use super::store::StoreError;

/// A failed request.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The caller can correct the request.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The caller can only retry later.
    #[error(transparent)]
    Store(Arc<StoreError>),
    /// Only an operator can fix it; the caller gets no details.
    #[error("internal server error")]
    Internal(#[source] Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    pub(super) fn internal(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Internal(Arc::new(error))
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(Arc::new(error))
    }
}

impl From<sqlx::Error> for Error {
    fn from(error: sqlx::Error) -> Self {
        StoreError::from(error).into()
    }
}

impl From<crate::models::InvalidField> for Error {
    fn from(error: crate::models::InvalidField) -> Self {
        Self::Refused(error.into())
    }
}
