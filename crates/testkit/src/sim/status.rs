//! The errors of the server, as the `Status` that a real one sends.

use serde_json::{Value, json};

/// A request that is answered with an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) code: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) retry_after: Option<u32>,
}

impl Refused {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            retry_after: None,
        }
    }

    pub(super) fn not_found(resource: &str, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{resource} \"{name}\" not found"))
    }

    pub(super) fn exists(resource: &str, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{resource} \"{name}\" already exists"))
    }

    pub(super) fn conflict(resource: &str, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {resource} \"{name}\": {why}");
        Self::new(409, "Conflict", message)
    }

    pub(super) fn changed(resource: &str, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// An error of the server itself: 429, 500, 503 or 504.
    pub(super) fn server(code: u16) -> Self {
        let (reason, message) = match code {
            429 => ("TooManyRequests", "too many requests, please try again later"),
            503 => (
                "ServiceUnavailable",
                "the server is currently unable to handle the request",
            ),
            504 => ("Timeout", "request did not complete within the allotted timeout"),
            _ => ("InternalError", "etcdserver: request timed out"),
        };
        let retry_after = matches!(code, 429 | 503).then_some(1);
        Self {
            retry_after,
            ..Self::new(code, reason, message)
        }
    }

    /// The body of the answer, and the object of an ERROR event.
    pub(super) fn status(&self) -> Value {
        let details = match self.retry_after {
            Some(seconds) => json!({"retryAfterSeconds": seconds}),
            None => json!({}),
        };
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "details": details, "code": self.code,
        })
    }
}
