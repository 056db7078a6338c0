//! Checks of the headers that each request has.

use axum::extract::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName};
use http::{StatusCode, Version};

use crate::server::refusal::Refusal;

/// The header that makes the creation of an object idempotent.
pub(crate) const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header with the event after which a change stream resumes.
pub(crate) const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

/// The headers that a request has once: a proxy may have read another one than this server would.
const SINGLE: [HeaderName; 5] = [HOST, AUTHORIZATION, CONTENT_TYPE, IDEMPOTENCY_KEY, LAST_EVENT_ID];

/// Refuses a header that is there more than once, and HTTP/1.1 without `Host` (RFC 9112, section 3.2).
pub(crate) fn check_headers(request: &Request) -> Result<(), Refusal> {
    let count = |name: &HeaderName| request.headers().get_all(name).iter().count();
    if let Some(name) = SINGLE.iter().find(|name| count(name) > 1) {
        let message = format!("{name}: is there more than once; send it once");
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    }
    if request.version() == Version::HTTP_11 && count(&HOST) == 0 {
        let message = "host: is missing; HTTP/1.1 needs it";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, message));
    }
    Ok(())
}
