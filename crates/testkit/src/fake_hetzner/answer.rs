//! What the fake answers, in the words of Hetzner Cloud.

use http::StatusCode;
use serde_json::{Value, json};

use crate::fake_http::Outcome;

/// An answer that a test has put into a queue.
#[derive(Clone, Debug)]
pub enum Scripted {
    /// An error in the API's own form.
    Error {
        /// The HTTP status.
        status: u16,
        /// The code, for example `unavailable`.
        code: &'static str,
        /// The message.
        message: String,
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
    /// An error with this status and code.
    #[must_use]
    pub fn error(status: u16, code: &'static str) -> Self {
        Self::Error {
            status,
            code,
            message: format!("{code} of the fake"),
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

    /// Too many calls.
    #[must_use]
    pub fn throttled() -> Self {
        Self::error(429, "rate_limit_exceeded")
    }

    /// The API has failed.
    #[must_use]
    pub fn failed() -> Self {
        Self::error(500, "server_error")
    }

    /// The token may not make this call.
    #[must_use]
    pub fn forbidden() -> Self {
        Self::error(403, "forbidden")
    }

    /// The token is none.
    #[must_use]
    pub fn unauthorized() -> Self {
        Self::error(401, "unauthorized")
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
        match self {
            Self::Error { status, code, message } => (error(status, code, &message), code.to_owned()),
            Self::Raw { status, body } => {
                let status = StatusCode::from_u16(status).expect("a status");
                (Outcome::Reply(status, body), "raw".to_owned())
            }
            Self::Drop => (Outcome::Drop, "drop".to_owned()),
            Self::BreakOff => (Outcome::BreakOff("{\"servers\": ["), "break-off".to_owned()),
            Self::Hang => (Outcome::Hang, "hang".to_owned()),
        }
    }
}

/// An error of the API.
fn error(status: u16, code: &str, message: &str) -> Outcome {
    let body = json!({"error": {"code": code, "message": message, "details": null}});
    Outcome::Reply(StatusCode::from_u16(status).expect("a status"), body.to_string())
}
