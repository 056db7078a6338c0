//! The meaning of failed calls.
//!
//! A failure is described by the API's error code or the system's error for a broken connection, never by the API's
//! message, which may quote the request, and by nothing that differs between calls.

use serde::Deserialize;

use crate::cause::system_word;
use crate::refusal::{Refusal, UnavailableCause};

const TIMEOUT: &str = "timeout";

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    api: &'static str,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// The server does not exist.
    NotFound,
    /// Too many calls.
    Throttled,
    /// The API may have been reached, but did not respond in time.
    Timeout,
    /// Any other failure.
    Unavailable { cause: UnavailableCause, detail: String },
}

/// The format of all errors of the API.
#[derive(Deserialize)]
struct ErrorAnswer {
    error: ErrorCode,
}

#[derive(Deserialize)]
struct ErrorCode {
    code: String,
}

impl Failure {
    fn plain(api: &'static str, kind: Kind) -> Self {
        Self { api, kind }
    }

    fn unavailable(api: &'static str, cause: UnavailableCause, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self::plain(api, Kind::Unavailable { cause, detail })
    }

    /// An unusable response.
    pub(super) fn unusable(api: &'static str, detail: impl Into<String>) -> Self {
        Self::unavailable(api, UnavailableCause::Unusable, detail)
    }

    /// Too many calls.
    pub(super) fn throttled(api: &'static str) -> Self {
        Self::plain(api, Kind::Throttled)
    }

    /// A call without a response, or with an interrupted one.
    pub(super) fn of(api: &'static str, error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::plain(api, Kind::Timeout);
        }
        Self::unavailable(api, UnavailableCause::Unreachable, system_word(error))
    }

    /// Interprets a response with an error status. Source: "Errors" and "Rate Limiting" of the API reference.
    pub(super) fn answered(api: &'static str, status: u16, body: &[u8]) -> Self {
        let Ok(answer) = serde_json::from_slice::<ErrorAnswer>(body) else {
            return Self::not_hetzner(api, status);
        };
        let code = answer.error.code;
        let shown: String = code.chars().filter(char::is_ascii_graphic).take(64).collect();
        let cause = match (status, code.as_str()) {
            (429, _) | (_, "rate_limit_exceeded") => return Self::throttled(api),
            (404, "not_found") => return Self::plain(api, Kind::NotFound),
            (401, _) => UnavailableCause::Credentials,
            (403, _) => UnavailableCause::Denied,
            _ => UnavailableCause::Failed,
        };
        Self::unavailable(api, cause, format!("{status} {shown}"))
    }

    /// Not a response in the API's format: a proxy, a captive portal, or a broken body.
    pub(super) fn not_hetzner(api: &'static str, status: u16) -> Self {
        let cause = match status {
            429 => return Self::throttled(api),
            500.. => UnavailableCause::Failed,
            _ => UnavailableCause::Unusable,
        };
        Self::unavailable(api, cause, format!("status {status}, not a response of Hetzner Cloud"))
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    pub(super) fn refusal(&self) -> Refusal {
        let unavailable = |cause, detail: &str| Refusal::unavailable(self.api, cause, detail);
        match &self.kind {
            // For a call that names no server.
            Kind::NotFound => unavailable(UnavailableCause::Failed, "not found"),
            Kind::Throttled => Refusal::Throttled { api: self.api },
            Kind::Timeout => unavailable(UnavailableCause::Unreachable, TIMEOUT),
            Kind::Unavailable { cause, detail } => unavailable(*cause, detail),
        }
    }

    /// The value of the label `outcome` in the metric of calls.
    pub(super) fn outcome(&self) -> &'static str {
        match &self.kind {
            Kind::NotFound => "not_found",
            Kind::Throttled => "throttled",
            Kind::Timeout => "timeout",
            Kind::Unavailable { cause, .. } => cause.outcome(),
        }
    }
}
