//! Answers that may be absent.

use kube::Error;

/// Returns true if the API server says 404: there is no such object or, of a list, no definition of the kind.
#[must_use]
pub fn is_not_found(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

/// The answer; None if [`is_not_found`].
///
/// # Errors
/// Every other error.
pub fn optional<T>(answer: kube::Result<T>) -> kube::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}
