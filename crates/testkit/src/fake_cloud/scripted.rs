//! The answers that a test orders in place of a cloud's own.

use serde_json::Value;

/// An answer that a test orders. The errors of the first four are written in the words of the cloud.
#[derive(Clone, Debug)]
pub enum Scripted {
    /// Too many calls.
    Throttled,
    /// The cloud has failed.
    Failed,
    /// The caller may not make this call.
    Denied,
    /// The credentials are missing or invalid.
    Unauthenticated,
    /// Another error, in the cloud's own form.
    Error {
        /// The HTTP status.
        status: u16,
        /// The code, for example `InternalError`.
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
    /// A page of a proxy or a captive portal, which says that all is well.
    Html,
    /// Nothing that any cloud writes.
    Garbage,
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

    /// This status and body.
    #[must_use]
    pub fn raw(status: u16, body: &str) -> Self {
        Self::Raw {
            status,
            body: body.to_owned(),
        }
    }

    /// This body, as a good answer.
    #[must_use]
    pub fn json(body: &Value) -> Self {
        Self::raw(200, &body.to_string())
    }
}
