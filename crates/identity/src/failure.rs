//! Failed calls of the clouds, and their meaning for the claims that depend on them.
//!
//! A failure is described by the cloud's error code or the system's error for a broken connection, never by the cloud's
//! message, which may quote the request, and by nothing that differs between calls.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use google_cloud_gax::error::Error as GoogleError;
use google_cloud_gax::error::rpc::{Code, Status, StatusDetails};
use serde::Deserialize;
use tracing::warn;

use crate::aws::connect::unusable_response;
use crate::refusal::{Refusal, UnavailableCause};

const TIMEOUT: &str = "timeout";
const COMPUTE_ENGINE: &str = "Compute Engine";
const HETZNER_CLOUD: &str = "Hetzner Cloud";

/// A failed call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    api: &'static str,
    pub(crate) kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The requested resource does not exist.
    NotFound,
    /// EC2 does not know one or more of the ids; for instances, the message contains them.
    UnknownIds { message: String },
    /// The call itself was rejected; a call for another zone would be as well.
    Rejected { detail: String },
    /// Too many calls.
    Throttled,
    /// The cloud may have been reached, but did not respond in time.
    Timeout,
    /// Any other failure.
    Unavailable { cause: UnavailableCause, detail: String },
}

impl Failure {
    pub(crate) fn new(api: &'static str, cause: UnavailableCause, detail: impl Into<String>) -> Self {
        let kind = unavailable(cause, detail);
        Self { api, kind }
    }

    /// An unusable response.
    pub(crate) fn unusable(api: &'static str, detail: impl Into<String>) -> Self {
        Self::new(api, UnavailableCause::Unusable, detail)
    }

    pub(crate) fn throttled(api: &'static str) -> Self {
        let kind = Kind::Throttled;
        Self { api, kind }
    }

    /// The credentials did not arrive within their timeout: the client's own timeout covers only the call that follows.
    pub(crate) fn no_credentials_in_time(api: &'static str) -> Self {
        Self::new(api, UnavailableCause::Credentials, TIMEOUT)
    }

    /// A failed call of EC2 or Auto Scaling.
    pub(crate) fn of_aws<E>(api: &'static str, error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        let kind = aws(error);
        Self { api, kind }
    }

    /// A failed call of Compute Engine.
    pub(crate) fn of_google(api: &'static str, error: &GoogleError) -> Self {
        let kind = google(error);
        Self { api, kind }
    }

    /// A call of Hetzner Cloud without a response, or with an interrupted one.
    pub(crate) fn of_hetzner(api: &'static str, error: &reqwest::Error) -> Self {
        let kind = if error.is_timeout() {
            Kind::Timeout
        } else {
            unavailable(UnavailableCause::Unreachable, system_word(error))
        };
        Self { api, kind }
    }

    /// A response of Hetzner Cloud with an error status.
    pub(crate) fn of_hetzner_status(api: &'static str, status: u16, body: &[u8]) -> Self {
        let kind = hetzner(status, body);
        Self { api, kind }
    }

    /// A response with the status of a success that is not one of Hetzner Cloud.
    pub(crate) fn not_of_hetzner(api: &'static str, status: u16) -> Self {
        let kind = not_of_cloud(status, HETZNER_CLOUD);
        Self { api, kind }
    }

    pub(crate) fn is_not_found(&self) -> bool {
        self.kind == Kind::NotFound
    }

    /// Returns true if the credentials are missing or rejected.
    pub(crate) fn is_about_credentials(&self) -> bool {
        self.cause() == Some(UnavailableCause::Credentials)
    }

    /// Returns true if one instance or one zone may be the reason, so that a call for others may succeed.
    pub(crate) fn may_depend_on_target(&self) -> bool {
        self.kind == Kind::Timeout || self.cause() == Some(UnavailableCause::Failed)
    }

    /// Returns true if the failure may depend on the listing: its permission, its parameters, or one row that makes the
    /// whole response unusable. Then a call for a single instance may succeed.
    pub(crate) fn may_depend_on_listing(&self) -> bool {
        let of_listing = [UnavailableCause::Denied, UnavailableCause::Unusable];
        matches!(self.kind, Kind::Rejected { .. }) || self.cause().is_some_and(|cause| of_listing.contains(&cause))
    }

    fn cause(&self) -> Option<UnavailableCause> {
        match self.kind {
            Kind::Unavailable { cause, .. } => Some(cause),
            _ => None,
        }
    }

    /// The refusal for each claim that depends on the call.
    pub(crate) fn refusal(&self) -> Refusal {
        let unavailable = |cause, detail: &str| Refusal::unavailable(self.api, cause, detail);
        match &self.kind {
            // For a call that names no instance.
            Kind::NotFound => unavailable(UnavailableCause::Failed, "not found"),
            Kind::UnknownIds { .. } => unavailable(
                UnavailableCause::Unusable,
                "an unknown instance in the response to a filter",
            ),
            Kind::Rejected { detail } => unavailable(UnavailableCause::Failed, detail),
            Kind::Throttled => Refusal::Throttled { api: self.api },
            Kind::Timeout => unavailable(UnavailableCause::Unreachable, TIMEOUT),
            Kind::Unavailable { cause, detail } => unavailable(*cause, detail),
        }
    }

    /// The value of the label `outcome` in the metric of calls.
    pub(crate) fn outcome(&self) -> &'static str {
        match &self.kind {
            Kind::NotFound | Kind::UnknownIds { .. } => "not_found",
            Kind::Throttled => "throttled",
            Kind::Timeout => "timeout",
            Kind::Rejected { .. } => "failed",
            Kind::Unavailable { cause, .. } => cause.outcome(),
        }
    }
}

fn unavailable(cause: UnavailableCause, detail: impl Into<String>) -> Kind {
    let detail = detail.into();
    Kind::Unavailable { cause, detail }
}

/// A response that is not in the cloud's format: of a proxy, a captive portal, or with a broken body.
fn not_of_cloud(status: u16, cloud: &str) -> Kind {
    let cause = match status {
        429 => return Kind::Throttled,
        500.. => UnavailableCause::Failed,
        _ => UnavailableCause::Unusable,
    };
    unavailable(cause, format!("status {status}, not a response of {cloud}"))
}

/// A code of the cloud, safe to show.
fn shown(code: &str) -> String {
    code.chars().filter(char::is_ascii_graphic).take(64).collect()
}

fn aws<E>(error: &SdkError<E, HttpResponse>) -> Kind
where
    E: ProvideErrorMetadata + Error + 'static,
{
    // The SDK reports missing credentials as a request that could not be sent.
    if causes(error).any(<dyn Error>::is::<CredentialsError>) {
        return unavailable(UnavailableCause::Credentials, "");
    }
    if let Some(unusable) = unusable_response(causes(error)) {
        return unavailable(UnavailableCause::Unusable, unusable);
    }
    match error {
        SdkError::ServiceError(context) => aws_answered(context.err(), context.raw().status().as_u16()),
        SdkError::TimeoutError(_) => Kind::Timeout,
        SdkError::DispatchFailure(sent) if sent.is_timeout() => unavailable(UnavailableCause::Unreachable, TIMEOUT),
        SdkError::DispatchFailure(_) => {
            let word = system_word(error);
            // The SDK has only this word, and no type, for a source of credentials that does not respond.
            let cause = if word.starts_with("identity resolver") {
                UnavailableCause::Credentials
            } else {
                UnavailableCause::Unreachable
            };
            unavailable(cause, word)
        }
        SdkError::ResponseError(_) => unavailable(UnavailableCause::Unreachable, "the response is truncated"),
        other => {
            warn!(error = %system_word(other), "cannot call AWS");
            unavailable(UnavailableCause::Unusable, "the request could not be sent")
        }
    }
}

/// Interprets an error response. Sources: "Error codes for the Amazon EC2 API", "Common errors" of Amazon EC2 Auto
/// Scaling.
fn aws_answered(error: &impl ProvideErrorMetadata, status: u16) -> Kind {
    let Some(code) = error.code() else {
        // Not an error in AWS's format: of a proxy, a captive portal, or with a broken body.
        let cause = if status >= 500 {
            UnavailableCause::Failed
        } else {
            UnavailableCause::Unusable
        };
        return unavailable(cause, format!("status {status}, not a response of AWS"));
    };
    match code {
        _ if code.starts_with("InvalidInstanceID") || code.starts_with("InvalidLaunchTemplateId") => {
            let message = error.message().unwrap_or_default().to_owned();
            Kind::UnknownIds { message }
        }
        _ if aws_throttled(code) || status == 429 => Kind::Throttled,
        "UnauthorizedOperation"
        | "AccessDenied"
        | "AccessDeniedException"
        | "Blocked"
        | "OptInRequired"
        | "PendingVerification" => unavailable(UnavailableCause::Denied, shown(code)),
        "AuthFailure"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "IncompleteSignature"
        | "InvalidAccessKeyId"
        | "InvalidClientTokenId"
        | "InvalidSecurityToken"
        | "MissingAuthenticationToken"
        | "NotSignedUp"
        | "RequestExpired"
        | "SignatureDoesNotMatch"
        | "UnrecognizedClientException" => unavailable(UnavailableCause::Credentials, shown(code)),
        _ => unavailable(UnavailableCause::Failed, shown(code)),
    }
}

fn aws_throttled(code: &str) -> bool {
    code.starts_with("Throttl")
        || matches!(
            code,
            "RequestLimitExceeded"
                | "BandwidthLimitExceeded"
                | "EC2ThrottledException"
                | "PriorRequestNotComplete"
                | "RequestThrottled"
                | "RequestThrottledException"
                | "SlowDown"
                | "TooManyRequestsException"
        )
}

fn google(error: &GoogleError) -> Kind {
    let status_code = error.http_status_code();
    if error.is_authentication() {
        return unavailable(UnavailableCause::Credentials, "");
    }
    if error.is_timeout() || google_timed_out(error) {
        return Kind::Timeout;
    }
    if let Some(status) = error.status() {
        return google_answered(status, status_code.unwrap_or_default());
    }
    if let Some(code) = status_code {
        return not_of_cloud(code, COMPUTE_ENGINE);
    }
    if error.is_deserialization() {
        return not_of_cloud(200, COMPUTE_ENGINE);
    }
    if error.is_connect() || error.is_io() {
        return unavailable(UnavailableCause::Unreachable, system_word(error));
    }
    warn!(error = %system_word(error), "cannot call Compute Engine");
    unavailable(UnavailableCause::Unusable, "the request could not be sent")
}

/// Interprets an error response. Source: "Error messages" and "API rate quota" of the documentation, and AIP-193.
fn google_answered(status: &Status, code: u16) -> Kind {
    let reason = google_reason(status);
    let shown = shown(reason);
    let detail = if shown.is_empty() {
        code.to_string()
    } else {
        format!("{code} {shown}")
    };
    match code {
        429 => Kind::Throttled,
        _ if google_throttled(status, reason) => Kind::Throttled,
        401 => unavailable(UnavailableCause::Credentials, detail),
        403 => unavailable(UnavailableCause::Denied, detail),
        404 => Kind::NotFound,
        // All methods report a zone that does not exist only in the message.
        400 if reason == "invalid" && status.message.contains("Unknown zone") => Kind::NotFound,
        500.. => unavailable(UnavailableCause::Failed, detail),
        _ => Kind::Rejected { detail },
    }
}

/// The first reason in the status: `notFound`, `rateLimitExceeded`, `RATE_LIMIT_EXCEEDED`, …
fn google_reason(status: &Status) -> &str {
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
fn google_throttled(status: &Status, reason: &str) -> bool {
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
fn google_timed_out(error: &GoogleError) -> bool {
    causes(error).any(|cause| {
        cause
            .downcast_ref::<reqwest::Error>()
            .is_some_and(reqwest::Error::is_timeout)
    })
}

/// The format of all errors of Hetzner Cloud.
#[derive(Deserialize)]
struct HetznerError {
    error: HetznerErrorCode,
}

#[derive(Deserialize)]
struct HetznerErrorCode {
    code: String,
}

/// Interprets a response with an error status. Source: "Errors" and "Rate Limiting" of the API reference.
fn hetzner(status: u16, body: &[u8]) -> Kind {
    let Ok(HetznerError { error }) = serde_json::from_slice(body) else {
        return not_of_cloud(status, HETZNER_CLOUD);
    };
    let cause = match (status, error.code.as_str()) {
        (429, _) | (_, "rate_limit_exceeded") => return Kind::Throttled,
        (404, "not_found") => return Kind::NotFound,
        (401, _) => UnavailableCause::Credentials,
        (403, _) => UnavailableCause::Denied,
        _ => UnavailableCause::Failed,
    };
    unavailable(cause, format!("{status} {}", shown(&error.code)))
}

/// The error and its causes, the innermost last.
fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// The innermost cause, escaped and bounded: `Connection refused (os error 111)`.
fn system_word(error: &(dyn Error + 'static)) -> String {
    let innermost = causes(error).last().map(ToString::to_string).unwrap_or_default();
    innermost.chars().flat_map(char::escape_debug).take(120).collect()
}
