//! The meaning of failed calls of EC2 and Auto Scaling.
//!
//! A failure is described by AWS's error code or the system's error for a broken connection, never by AWS's message,
//! which may quote the request, and by nothing that differs between calls.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use tracing::warn;

use super::response::limit;
use crate::cause::{causes, system_word};
use crate::refusal::{Refusal, UnavailableCause};

const TIMEOUT: &str = "timeout";

/// A failed call.
#[derive(Debug)]
pub(super) enum Failure {
    /// EC2 does not know one or more of the ids; for instances, the message contains them.
    Unknown { message: String },
    /// Too many calls.
    Throttled,
    /// AWS was reached and did not respond in time.
    Timeout,
    /// Any other failure.
    Unavailable { cause: UnavailableCause, detail: String },
}

impl Failure {
    pub(super) fn of<E>(error: &SdkError<E, HttpResponse>) -> Self
    where
        E: ProvideErrorMetadata + Error + 'static,
    {
        failure(error)
    }

    /// An unusable response.
    pub(super) fn unusable(detail: String) -> Self {
        Self::Unavailable {
            cause: UnavailableCause::Unusable,
            detail,
        }
    }

    /// Returns true if a call with other ids may succeed.
    pub(super) fn may_depend_on_ids(&self) -> bool {
        matches!(
            self,
            Self::Timeout
                | Self::Unavailable {
                    cause: UnavailableCause::Failed,
                    ..
                }
        )
    }

    /// The refusal for each claim that depends on this call of `api`.
    pub(super) fn refusal(&self, api: &'static str) -> Refusal {
        match self {
            Self::Unknown { .. } => unusable(api, "an unknown instance in the response to a filter".to_owned()),
            Self::Throttled => Refusal::Throttled { api },
            Self::Timeout => Refusal::unavailable(api, UnavailableCause::Unreachable, TIMEOUT),
            Self::Unavailable { cause, detail } => Refusal::unavailable(api, *cause, detail),
        }
    }

    /// The value of the label `outcome` in the metric of calls.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "not_found",
            Self::Throttled => "throttled",
            Self::Timeout => "timeout",
            Self::Unavailable { cause, .. } => cause.outcome(),
        }
    }
}

/// An unusable response.
pub(super) fn unusable(api: &'static str, detail: String) -> Refusal {
    Failure::unusable(detail).refusal(api)
}

fn failure<E>(error: &SdkError<E, HttpResponse>) -> Failure
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let unavailable = |cause, detail: &str| Failure::Unavailable {
        cause,
        detail: detail.to_owned(),
    };
    // The SDK reports missing credentials as a request that could not be sent.
    if causes(error).any(<dyn Error>::is::<CredentialsError>) {
        return unavailable(UnavailableCause::Credentials, "");
    }
    if let Some(unusable) = limit(causes(error)) {
        return Failure::unusable(unusable);
    }
    match error {
        SdkError::ServiceError(context) => answered(context.err(), context.raw().status().as_u16()),
        SdkError::TimeoutError(_) => Failure::Timeout,
        SdkError::DispatchFailure(sent) if sent.is_timeout() => unavailable(UnavailableCause::Unreachable, TIMEOUT),
        SdkError::DispatchFailure(_) => {
            let word = system_word(error);
            // The SDK has only this word, and no type, for a source of credentials that does not respond.
            let credentials = word.starts_with("identity resolver");
            unavailable(
                if credentials {
                    UnavailableCause::Credentials
                } else {
                    UnavailableCause::Unreachable
                },
                &word,
            )
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
fn answered(error: &impl ProvideErrorMetadata, status: u16) -> Failure {
    let with = |cause, detail: String| Failure::Unavailable { cause, detail };
    let Some(code) = error.code() else {
        // Not an error in AWS's format: a proxy, a captive portal, or a broken body.
        let cause = if status >= 500 {
            UnavailableCause::Failed
        } else {
            UnavailableCause::Unusable
        };
        return with(cause, format!("status {status}, not a response of AWS"));
    };
    let shown: String = code.chars().filter(char::is_ascii_graphic).take(64).collect();
    match code {
        _ if code.starts_with("InvalidInstanceID") || code.starts_with("InvalidLaunchTemplateId") => Failure::Unknown {
            message: error.message().unwrap_or_default().to_owned(),
        },
        _ if throttled(code) || status == 429 => Failure::Throttled,
        "UnauthorizedOperation"
        | "AccessDenied"
        | "AccessDeniedException"
        | "Blocked"
        | "OptInRequired"
        | "PendingVerification" => with(UnavailableCause::Denied, shown),
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
        | "UnrecognizedClientException" => with(UnavailableCause::Credentials, shown),
        _ => with(UnavailableCause::Failed, shown),
    }
}

fn throttled(code: &str) -> bool {
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
