//! What the fake answers, in the words of Compute Engine.

use http::StatusCode;
use serde_json::{Value, json};

use crate::fake_http::Outcome;

/// An answer that a test has put into a queue.
#[derive(Clone, Debug)]
pub enum Scripted {
    /// An error in Google's own form.
    Error {
        /// The HTTP status.
        status: u16,
        /// The reason, for example `backendError`.
        reason: &'static str,
        /// The message.
        message: String,
    },
    /// An error in the newer form, with the reason as a detail (`google.rpc.ErrorInfo`).
    ErrorInfo {
        /// The HTTP status.
        status: u16,
        /// The canonical code, for example `RESOURCE_EXHAUSTED`.
        code: &'static str,
        /// The reason, for example `RATE_LIMIT_EXCEEDED`.
        reason: &'static str,
    },
    /// Any status and body.
    Raw {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: String,
    },
    /// The connection is closed without an answer.
    Drop,
    /// The answer begins and never ends: the connection is closed in the middle of the body.
    BreakOff,
    /// No answer at all; the connection stays open.
    Hang,
}

impl Scripted {
    /// An error with this status and reason.
    #[must_use]
    pub fn error(status: u16, reason: &'static str) -> Self {
        Self::Error {
            status,
            reason,
            message: format!("{reason} of the fake"),
        }
    }

    /// This body, as a good answer.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::Raw {
            status: 200,
            body: body.to_string(),
        }
    }

    /// Too many calls, as Compute Engine says it.
    #[must_use]
    pub fn throttled() -> Self {
        Self::error(403, "rateLimitExceeded")
    }

    /// Compute Engine has failed.
    #[must_use]
    pub fn backend_error() -> Self {
        Self::error(503, "backendError")
    }

    /// The service account may not make this call.
    #[must_use]
    pub fn forbidden() -> Self {
        Self::error(403, "forbidden")
    }

    /// A page of a proxy or a captive portal, which says that all is well.
    #[must_use]
    pub fn html() -> Self {
        Self::Raw {
            status: 200,
            body: "<!DOCTYPE html><html><body>Welcome! Please log in.</body></html>".to_owned(),
        }
    }

    /// Nothing that is JSON.
    #[must_use]
    pub fn garbage() -> Self {
        Self::Raw {
            status: 200,
            body: "\u{0}\u{1}{]<&nonsense".to_owned(),
        }
    }

    pub(super) fn follow(self) -> (Outcome, String) {
        let status_of = |status| StatusCode::from_u16(status).expect("a status");
        match self {
            Self::Error {
                status,
                reason,
                message,
            } => {
                let refused = Refused {
                    status,
                    reason,
                    message,
                };
                (refused.outcome(), reason.to_owned())
            }
            Self::ErrorInfo { status, code, reason } => {
                let detail = json!({
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": reason,
                    "domain": "googleapis.com",
                    "metadata": {"service": "compute.googleapis.com"},
                });
                let body = json!({"error": {
                    "code": status, "message": "of the fake", "status": code, "details": [detail],
                    "errors": [{"message": "of the fake", "domain": "usageLimits", "reason": "other"}],
                }});
                (Outcome::Reply(status_of(status), body.to_string()), reason.to_owned())
            }
            Self::Raw { status, body } => (Outcome::Reply(status_of(status), body), "raw".to_owned()),
            Self::Drop => (Outcome::Drop, "drop".to_owned()),
            Self::BreakOff => (
                Outcome::BreakOff("{\"kind\": \"compute#instance\", "),
                "break-off".to_owned(),
            ),
            Self::Hang => (Outcome::Hang, "hang".to_owned()),
        }
    }
}

/// An error of the API.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) status: u16,
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Refused {
    pub(super) fn new(status: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            reason,
            message: message.into(),
        }
    }

    pub(super) fn not_found(path: &str) -> Self {
        Self::new(
            404,
            "notFound",
            format!("The resource 'projects/{}/{path}' was not found", super::PROJECT),
        )
    }

    pub(super) fn outcome(&self) -> Outcome {
        let domain = if self.reason.ends_with("LimitExceeded") {
            "usageLimits"
        } else {
            "global"
        };
        let body = json!({"error": {
            "code": self.status,
            "message": self.message,
            "errors": [{"message": self.message, "domain": domain, "reason": self.reason}],
        }});
        let status = StatusCode::from_u16(self.status).expect("a status");
        Outcome::Reply(status, body.to_string())
    }
}
