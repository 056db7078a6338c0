//! Requests and responses. Their `Debug` output contains no body.

use std::fmt;

use bytes::Bytes;
use http::{HeaderValue, Method, StatusCode};
use serde_json::Value;

use super::budget::{BudgetPart, ByteBudget};
use super::path::Path;
use crate::models::UpgradeScript;

/// The version of an object or a list, as named by the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ETag(pub(super) HeaderValue);

impl fmt::Display for ETag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(self.0.as_bytes()))
    }
}

/// The body of a request.
#[derive(Clone)]
pub enum Body {
    Json(Value),
    Script(UpgradeScript),
}

#[derive(Clone, Debug)]
pub struct Request {
    pub method: Method,
    pub path: Path,
    /// `If-None-Match`: the response is 304 if this is the current version.
    pub known: Option<ETag>,
    /// `If-Match`: the response is 412 unless this is the current version.
    pub if_match: Option<ETag>,
    pub body: Option<Body>,
    /// True if the request must not be retried.
    pub once: bool,
    /// The budget for the body of the response; its largest body is the limit.
    pub budget: Option<ByteBudget>,
}

/// A complete response.
pub struct Answer {
    /// A success status, or 304.
    pub status: StatusCode,
    pub etag: Option<ETag>,
    /// The program that responded and its version, as it states them: `tidewaiter/0.1.0`.
    pub server: Option<String>,
    /// The number of the change that the response is of, or up to which it is current; `None` from an older cloud.
    pub change: Option<u64>,
    pub(super) body: Bytes,
    pub(super) part: Option<BudgetPart>,
}

impl Request {
    /// A request without a body and without a condition.
    #[must_use]
    pub fn new(method: Method, path: Path) -> Self {
        Self {
            method,
            path,
            known: None,
            if_match: None,
            body: None,
            once: false,
            budget: None,
        }
    }

    #[must_use]
    pub fn json(mut self, value: Value) -> Self {
        self.body = Some(Body::Json(value));
        self
    }
}

impl Answer {
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.body
    }

    /// The body as JSON.
    ///
    /// # Errors
    /// The syntax error, if it is not JSON.
    pub fn json(&self) -> Result<Value, String> {
        serde_json::from_slice(&self.body).map_err(|error| format!("is not valid JSON: {error}"))
    }

    /// The body as text.
    ///
    /// # Errors
    /// If it is not UTF-8.
    pub fn text(&self) -> Result<&str, String> {
        std::str::from_utf8(&self.body).map_err(|_| "is not UTF-8".to_owned())
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Body(not shown)")
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Answer({}, {} bytes not shown)", self.status, self.body.len())
    }
}
