//! `Retry-After`: the time after which a request that the API server, or a proxy before it, refused may be sent again.
//!
//! kube drops the headers of an error and keeps its `Status`, which has a field for the same. API priority and fairness
//! refuses with a header and a line of text, so the gate writes the value of the header into the Status, where a retry
//! reads it.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response, header};
use jiff::Timestamp;
use jiff::fmt::rfc2822::DateTimeParser;
use kube::core::Status;
use kube::core::response::StatusDetails;

use crate::retry::FLOOR;

/// The time after which the request that led to this error may be sent again, if the server names one: five minutes at
/// most.
#[must_use]
pub fn retry_after(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    in_status(status)
}

/// The time after which a watch that ended with this Status may be started again, if it names one.
pub(crate) fn in_status(status: &Status) -> Option<Duration> {
    let seconds = status.details.as_ref()?.retry_after_seconds;
    (seconds > 0).then(|| Duration::from_secs(seconds.into()).min(FLOOR))
}

/// True if the body of this response has to be read for [`into_status`].
pub(super) fn has_retry_after<B>(response: &Response<B>) -> bool {
    let status = response.status();
    (status.is_client_error() || status.is_server_error()) && response.headers().contains_key(header::RETRY_AFTER)
}

/// The response, with the value of its header in the Status that is its body. Any other body becomes the message of
/// one.
pub(super) fn into_status(response: Response<Bytes>, now: Timestamp) -> Response<Bytes> {
    let Some(after) = has_retry_after(&response)
        .then(|| parse_retry_after(response.headers(), now))
        .flatten()
    else {
        return response;
    };
    let (mut parts, body) = response.into_parts();
    let mut status = serde_json::from_slice(&body).unwrap_or_else(|_| {
        let text = String::from_utf8_lossy(&body);
        let reason = parts.status.canonical_reason().unwrap_or_default();
        Status::failure(text.trim(), reason).with_code(parts.status.as_u16())
    });
    let details = status.details.get_or_insert_with(|| StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    });
    details.retry_after_seconds = details.retry_after_seconds.max(after);
    let Ok(text) = serde_json::to_vec(&status) else {
        return Response::from_parts(parts, body);
    };
    for name in [header::CONTENT_LENGTH, header::CONTENT_TYPE] {
        parts.headers.remove(name);
    }
    Response::from_parts(parts, text.into())
}

/// The time in the header `Retry-After`: seconds or a date (RFC 9110, 10.2.3).
#[must_use]
pub fn retry_after_header(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let time = DateTimeParser::new().parse_timestamp(text).ok()?;
    Some(Duration::try_from(time.duration_since(now)).unwrap_or_default())
}

/// The time in the header `Retry-After` in seconds, rounded up.
fn parse_retry_after(headers: &HeaderMap, now: Timestamp) -> Option<u32> {
    let seconds = retry_after_header(headers, now)?.as_millis().div_ceil(1000);
    Some(u32::try_from(seconds).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn answer(code: u16, after: &str, body: &str) -> Response<Bytes> {
        let response = Response::builder().status(code).header("Retry-After", after);
        let length = body.len();
        let response = response.header("Content-Length", length);
        response.body(Bytes::copy_from_slice(body.as_bytes())).unwrap()
    }

    fn error(response: Response<Bytes>) -> kube::Error {
        let response = into_status(response, "2026-01-01T00:00:00Z".parse().unwrap());
        let length = response.headers().get(header::CONTENT_LENGTH);
        assert_eq!(length, None);
        kube::Error::Api(Box::new(serde_json::from_slice(response.body()).unwrap()))
    }

    #[test]
    fn seconds_and_dates_are_obeyed_up_to_a_limit() {
        for (after, seconds) in [
            ("1", Some(1)),
            (" 7 ", Some(7)),
            ("Thu, 01 Jan 2026 00:00:09 GMT", Some(9)),
            ("86400", Some(300)),
            ("0", None),
            ("Wed, 31 Dec 2025 00:00:00 GMT", None),
        ] {
            let response = answer(429, after, "Too many requests, please try again later.\n");
            let found = error(response);
            assert_eq!(retry_after(&found), seconds.map(Duration::from_secs), "{after}");
            let kube::Error::Api(status) = found else { panic!() };
            assert_eq!(
                (status.code, status.message.as_str(), status.reason.as_str()),
                (429, "Too many requests, please try again later.", "Too Many Requests")
            );
        }
    }

    #[test]
    fn a_status_keeps_what_it_says() {
        let body = |details: Value| {
            let status = json!({"kind": "Status", "status": "Failure", "message": "later", "reason": "Timeout", "code": 504,
                "details": details});
            status.to_string()
        };
        for (details, seconds) in [
            (json!({}), 2),
            (json!({"name": "n", "retryAfterSeconds": 5}), 5),
            (Value::Null, 2),
        ] {
            let found = error(answer(504, "2", &body(details)));
            assert_eq!(retry_after(&found), Some(Duration::from_secs(seconds)));
            let kube::Error::Api(status) = found else { panic!() };
            assert_eq!((status.message.as_str(), status.reason.as_str()), ("later", "Timeout"));
        }
    }

    #[test]
    fn whatever_does_not_say_when_stays_as_it_is() {
        for (code, after) in [(429, "soon"), (200, "7"), (503, ""), (503, "99999999999999999999")] {
            let response = into_status(answer(code, after, "text"), Timestamp::UNIX_EPOCH);
            assert_eq!(response.body(), "text", "{code} {after}");
        }
    }
}
