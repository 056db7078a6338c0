//! What it means that a call gave nothing.
//!
//! What is told of a failure is the API's code or the system's word for a broken connection: never the API's own message, which may
//! quote the request, and nothing that differs from call to call.

use serde::Deserialize;

use crate::cause::system_word;
use crate::refusal::{Refusal, UnavailableCause};

const TIMEOUT: &str = "timeout";

/// A call that gave nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    api: &'static str,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// There is no such server.
    NotFound,
    /// Too many calls.
    Throttled,
    /// The API was reached, perhaps, and did not answer in time.
    Timeout,
    /// Anything else.
    Unavailable { cause: UnavailableCause, detail: String },
}

/// The form of all errors of the API.
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

    /// An answer that came and makes no sense.
    pub(super) fn unusable(api: &'static str, detail: impl Into<String>) -> Self {
        Self::unavailable(api, UnavailableCause::Unusable, detail)
    }

    /// A call that got no answer, or lost it on the way.
    pub(super) fn of(api: &'static str, error: &reqwest::Error) -> Self {
        if error.is_timeout() {
            return Self::plain(api, Kind::Timeout);
        }
        Self::unavailable(api, UnavailableCause::Unreachable, system_word(error))
    }

    /// What the API answered with a status that is no success. Source: "Errors" and "Rate Limiting" of its reference.
    pub(super) fn answered(api: &'static str, status: u16, body: &[u8]) -> Self {
        let Ok(answer) = serde_json::from_slice::<ErrorAnswer>(body) else {
            return Self::not_hetzner(api, status);
        };
        let code = answer.error.code;
        let shown: String = code.chars().filter(char::is_ascii_graphic).take(64).collect();
        let cause = match (status, code.as_str()) {
            (429, _) | (_, "rate_limit_exceeded") => return Self::plain(api, Kind::Throttled),
            (404, "not_found") => return Self::plain(api, Kind::NotFound),
            (401, _) => UnavailableCause::Credentials,
            (403, _) => UnavailableCause::Denied,
            _ => UnavailableCause::Failed,
        };
        Self::unavailable(api, cause, format!("{status} {shown}"))
    }

    /// Not the API's own form of an answer: a proxy, a captive portal, or a broken body.
    pub(super) fn not_hetzner(api: &'static str, status: u16) -> Self {
        let cause = match status {
            429 => return Self::plain(api, Kind::Throttled),
            500.. => UnavailableCause::Failed,
            _ => UnavailableCause::Unusable,
        };
        Self::unavailable(api, cause, format!("status {status}, not a response of Hetzner Cloud"))
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    pub(super) fn refusal(&self) -> Refusal {
        let unavailable = |cause, detail: &str| Refusal::Unavailable {
            api: self.api,
            cause,
            detail: detail.to_owned(),
        };
        match &self.kind {
            // Of a call that names no server.
            Kind::NotFound => unavailable(UnavailableCause::Failed, "not found"),
            Kind::Throttled => Refusal::Throttled { api: self.api },
            Kind::Timeout => unavailable(UnavailableCause::Unreachable, TIMEOUT),
            Kind::Unavailable { cause, detail } => unavailable(*cause, detail),
        }
    }

    /// One word for the metric.
    pub(super) fn outcome(&self) -> &'static str {
        match &self.kind {
            Kind::NotFound => "not_found",
            Kind::Throttled => "throttled",
            Kind::Timeout => "timeout",
            Kind::Unavailable { cause, .. } => cause.outcome(),
        }
    }
}
