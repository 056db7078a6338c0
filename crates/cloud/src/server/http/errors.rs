//! Responses to requests that fail.

use axum::response::Response;
use bytes::Bytes;
use http::StatusCode;
use http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use tidewaiter_kit::Chain;
use tracing::{debug, error};

use super::response::{json, set, text};
use crate::server::Error;
use crate::server::refusal::Refusal;
use crate::server::store::StoreError;

/// `Retry-After` in seconds, while the database is unavailable.
const COME_AGAIN: u64 = 2;

pub(crate) fn overloaded() -> Refusal {
    busy("the server is overloaded")
}

pub(crate) fn busy(message: &str) -> Refusal {
    Refusal::too_many(format!("{message}; try again later"), COME_AGAIN).with_status(StatusCode::SERVICE_UNAVAILABLE)
}

/// The response for an error; details are only logged.
pub(crate) fn failed(failure: &Error, request_id: &str) -> Response {
    match failure {
        Error::Refused(refusal) => {
            debug!(request_id, status = refusal.status.as_u16(), "refused");
            refused(refusal)
        }
        Error::Store(error) if matches!(**error, StoreError::Full) => refused(&busy("too many writes are pending")),
        Error::Store(error) if !matches!(**error, StoreError::Rejected(_)) => {
            error!(request_id, error = %Chain(error), "the database");
            refused(&busy("the database is not available"))
        }
        Error::Store(_) | Error::Internal(_) => {
            error!(request_id, error = %Chain(failure), "a request failed");
            let message = format!("internal server error; the server's log has details of the request {request_id}");
            refused(&Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, message))
        }
    }
}

pub(crate) fn refused(refusal: &Refusal) -> Response {
    let mut response = json(refusal.status, Bytes::from(text(&refusal.failure())));
    if refusal.status == StatusCode::UNAUTHORIZED {
        set(response.headers_mut(), WWW_AUTHENTICATE, "Bearer");
    }
    if let Some(seconds) = refusal.retry_after {
        set(response.headers_mut(), RETRY_AFTER, &seconds.to_string());
    }
    response
}
