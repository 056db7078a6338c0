//! The ids of requests.

use axum::response::Response;
use http::{HeaderMap, HeaderName};
use tidewaiter_kit::random;
use uuid::Uuid;

use super::response::set;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The id of a request. It only has to be unique, which needs no randomness from the system.
pub(crate) fn request_id() -> String {
    Uuid::from_u64_pair(random::u64(), random::u64()).to_string()
}

/// The request id from the caller, if it is safe in the audit log. It is never in the place of ours: a caller could
/// send that of another request.
pub(crate) fn client_id(headers: &HeaderMap) -> String {
    let sent = headers.get(REQUEST_ID).and_then(|id| id.to_str().ok());
    let fits = |id: &&str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        (1..=128).contains(&id.len()) && id.bytes().all(plain)
    };
    sent.filter(fits).unwrap_or_default().to_owned()
}

pub(crate) fn finish(mut response: Response, request_id: &str) -> Response {
    set(response.headers_mut(), REQUEST_ID, request_id);
    response
}
