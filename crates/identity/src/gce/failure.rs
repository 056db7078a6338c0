//! The meaning of failed calls.
//!
//! A failure is described by Google's error code or the system's error for a broken connection, never by Google's
//! message, which may quote the request, and by nothing that differs between calls.

use google_cloud_gax::error::Error;
use google_cloud_gax::error::rpc::{Code, Status, StatusDetails};
use tracing::warn;

use crate::cause::{causes, system_word};
use crate::refusal::{Refusal, UnavailableCause};

const TIMEOUT: &str = "timeout";

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) api: &'static str,
    pub(super) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The requested resource does not exist.
    NotFound,
    /// The call itself was rejected; a call for another zone would be as well.
    Rejected { detail: String },
    /// Too many calls.
    Throttled,
    /// Compute Engine was reached and did not respond in time.
    Timeout,
    /// Any other failure.
    Unavailable { cause: UnavailableCause, detail: String },
}

impl Failure {
    pub(super) fn new(api: &'static str, cause: UnavailableCause, detail: impl Into<String>) -> Self {
        Self {
            api,
            kind: unavailable_with(cause, detail),
        }
    }

    /// An unusable response.
    pub(super) fn unusable(api: &'static str, detail: impl Into<String>) -> Self {
        Self::new(api, UnavailableCause::Unusable, detail)
    }

    /// The credentials did not arrive within their timeout: the client's own timeout covers only the call that follows.
    pub(super) fn no_credentials_in_time(api: &'static str) -> Self {
        Self::new(api, UnavailableCause::Credentials, TIMEOUT)
    }

    pub(super) fn of(api: &'static str, error: &Error) -> Self {
        Self { api, kind: kind(error) }
    }

    pub(super) fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    /// Returns true if the credentials are missing or rejected.
    pub(super) fn is_about_credentials(&self) -> bool {
        matches!(
            self.kind,
            Kind::Unavailable {
                cause: UnavailableCause::Credentials,
                ..
            }
        )
    }

    /// Returns true if one failing zone may be the reason, so that a call for another zone may succeed.
    pub(super) fn may_depend_on_zone(&self) -> bool {
        matches!(
            self.kind,
            Kind::Timeout
                | Kind::Unavailable {
                    cause: UnavailableCause::Failed,
                    ..
                }
        )
    }

    /// Returns true if the failure may depend on the listing: its permission, its parameters, or one row that makes the
    /// whole response unusable. Then a call for a single instance may succeed.
    pub(super) fn may_depend_on_listing(&self) -> bool {
        matches!(
            self.kind,
            Kind::Rejected { .. }
                | Kind::Unavailable {
                    cause: UnavailableCause::Denied | UnavailableCause::Unusable,
                    ..
                }
        )
    }

    pub(super) fn refusal(&self) -> Refusal {
        let unavailable = |cause, detail: &str| Refusal::unavailable(self.api, cause, detail);
        match &self.kind {
            // For a call that names only the project.
            Kind::NotFound => unavailable(UnavailableCause::Failed, "not found"),
            Kind::Rejected { detail } => unavailable(UnavailableCause::Failed, detail),
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
            Kind::Rejected { .. } => "failed",
            Kind::Unavailable { cause, .. } => cause.outcome(),
        }
    }
}

fn unavailable_with(cause: UnavailableCause, detail: impl Into<String>) -> Kind {
    Kind::Unavailable {
        cause,
        detail: detail.into(),
    }
}

fn kind(error: &Error) -> Kind {
    let status_code = error.http_status_code();
    if error.is_authentication() {
        return unavailable_with(UnavailableCause::Credentials, "");
    }
    if error.is_timeout() || timed_out(error) {
        return Kind::Timeout;
    }
    if let Some(status) = error.status() {
        return answered(status, status_code.unwrap_or_default());
    }
    if let Some(code) = status_code {
        return not_google(code);
    }
    if error.is_deserialization() {
        return not_google(200);
    }
    if error.is_connect() || error.is_io() {
        return unavailable_with(UnavailableCause::Unreachable, system_word(error));
    }
    warn!(error = %system_word(error), "cannot call Compute Engine");
    unavailable_with(UnavailableCause::Unusable, "the request could not be sent")
}

/// Not a response in Google's format: a proxy, a captive portal, or a broken body.
fn not_google(code: u16) -> Kind {
    let cause = match code {
        429 => return Kind::Throttled,
        500.. => UnavailableCause::Failed,
        _ => UnavailableCause::Unusable,
    };
    unavailable_with(cause, format!("status {code}, not a response of Compute Engine"))
}

/// Interprets an error response. Source: "Error messages" and "API rate quota" of the documentation, and AIP-193.
fn answered(status: &Status, code: u16) -> Kind {
    let reason = reason(status);
    let shown: String = reason.chars().filter(char::is_ascii_graphic).take(64).collect();
    let detail = if shown.is_empty() {
        code.to_string()
    } else {
        format!("{code} {shown}")
    };
    match code {
        429 => Kind::Throttled,
        _ if throttled(status, reason) => Kind::Throttled,
        401 => unavailable_with(UnavailableCause::Credentials, detail),
        403 => unavailable_with(UnavailableCause::Denied, detail),
        404 => Kind::NotFound,
        // All methods report a zone that does not exist only in the message.
        400 if reason == "invalid" && status.message.contains("Unknown zone") => Kind::NotFound,
        500.. => unavailable_with(UnavailableCause::Failed, detail),
        _ => Kind::Rejected { detail },
    }
}

/// The first reason in the status: `notFound`, `rateLimitExceeded`, `RATE_LIMIT_EXCEEDED`, …
fn reason(status: &Status) -> &str {
    status
        .details
        .iter()
        .find_map(|detail| match detail {
            StatusDetails::ErrorInfo(info) if !info.reason.is_empty() => Some(info.reason.as_str()),
            _ => None,
        })
        .unwrap_or_default()
}

/// Returns true if a quota of calls is exceeded, which may be reported with status 403 or 429.
fn throttled(status: &Status, reason: &str) -> bool {
    status.code == Code::ResourceExhausted
        || status
            .details
            .iter()
            .any(|detail| matches!(detail, StatusDetails::QuotaFailure(_)))
        || matches!(
            reason,
            "rateLimitExceeded"
                | "userRateLimitExceeded"
                | "concurrentLimitExceeded"
                | "dailyLimitExceeded"
                | "quotaExceeded"
                | "RATE_LIMIT_EXCEEDED"
                | "RESOURCE_EXHAUSTED"
        )
}

/// A timeout within the body is reported as a broken connection.
fn timed_out(error: &Error) -> bool {
    causes(error).any(|cause| {
        cause
            .downcast_ref::<reqwest::Error>()
            .is_some_and(reqwest::Error::is_timeout)
    })
}
