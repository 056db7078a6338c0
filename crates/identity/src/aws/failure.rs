//! What it means that a call gave no instances.
//!
//! What is told of a failure is EC2's error code or the system's word for a broken connection: never EC2's own message, which
//! may quote the request, and nothing that differs from call to call.

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata as _, SdkError};
use aws_sdk_ec2::operation::describe_instances::DescribeInstancesError;
use tracing::warn;

use super::API;
use crate::cause::{causes, system_word};
use crate::refusal::{Refusal, Trouble};

const LATE: &str = "no answer in time";

/// A call that gave no instances.
#[derive(Debug)]
pub(super) enum Failure {
    /// EC2 does not know one or more of the ids; its message names them.
    Unknown { message: String },
    /// Too many calls.
    Throttled,
    /// EC2 was reached and did not answer in time.
    Late,
    /// Anything else.
    Trouble { trouble: Trouble, detail: String },
}

impl Failure {
    pub(super) fn of(error: &SdkError<DescribeInstancesError, HttpResponse>) -> Self {
        failure(error)
    }

    /// Whether another choice of ids may fare better.
    pub(super) fn may_depend_on_ids(&self) -> bool {
        matches!(
            self,
            Self::Late
                | Self::Trouble {
                    trouble: Trouble::Failed,
                    ..
                }
        )
    }

    pub(super) fn refusal(&self) -> Refusal {
        match self {
            Self::Unknown { .. } => unusable("an unknown instance in answer to a filter".to_owned()),
            Self::Throttled => Refusal::Throttled { api: API },
            Self::Late => Refusal::Unavailable {
                api: API,
                trouble: Trouble::Unreachable,
                detail: LATE.to_owned(),
            },
            Self::Trouble { trouble, detail } => Refusal::Unavailable {
                api: API,
                trouble: *trouble,
                detail: detail.clone(),
            },
        }
    }

    /// One word for the metric.
    pub(super) fn outcome(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "not_found",
            Self::Throttled => "throttled",
            Self::Late => "timeout",
            Self::Trouble { trouble, .. } => trouble.outcome(),
        }
    }
}

/// An answer that came and makes no sense.
pub(super) fn unusable(detail: String) -> Refusal {
    Refusal::Unavailable {
        api: API,
        trouble: Trouble::Unusable,
        detail,
    }
}

fn failure(error: &SdkError<DescribeInstancesError, HttpResponse>) -> Failure {
    let trouble = |trouble, detail: &str| Failure::Trouble {
        trouble,
        detail: detail.to_owned(),
    };
    // The SDK reports missing credentials as a request that could not be sent.
    if causes(error).any(<dyn std::error::Error>::is::<CredentialsError>) {
        return trouble(Trouble::Credentials, "");
    }
    match error {
        SdkError::ServiceError(context) => answered(context.err(), context.raw().status().as_u16()),
        SdkError::TimeoutError(_) => Failure::Late,
        SdkError::DispatchFailure(sent) if sent.is_timeout() => trouble(Trouble::Unreachable, LATE),
        SdkError::DispatchFailure(_) => {
            let word = system_word(error);
            // The SDK's own word, and no type of its own, for a source of credentials that never answers.
            let credentials = word.starts_with("identity resolver");
            trouble(
                if credentials {
                    Trouble::Credentials
                } else {
                    Trouble::Unreachable
                },
                &word,
            )
        }
        SdkError::ResponseError(_) => trouble(Trouble::Unreachable, "the answer broke off"),
        other => {
            warn!(error = %system_word(other), "a call of EC2 could not be made");
            trouble(Trouble::Unusable, "the call could not be made")
        }
    }
}

/// What EC2 answered instead of instances. Source: "Error codes for the Amazon EC2 API".
fn answered(error: &DescribeInstancesError, status: u16) -> Failure {
    let with = |trouble, detail: String| Failure::Trouble { trouble, detail };
    let Some(code) = error.code() else {
        // Not EC2's own form of an error: a proxy, a captive portal, or a broken body.
        let trouble = if status >= 500 {
            Trouble::Failed
        } else {
            Trouble::Unusable
        };
        return with(trouble, format!("status {status} and no answer of EC2"));
    };
    let shown: String = code.chars().filter(char::is_ascii_graphic).take(64).collect();
    match code {
        _ if code.starts_with("InvalidInstanceID") => Failure::Unknown {
            message: error.message().unwrap_or_default().to_owned(),
        },
        _ if throttled(code) || status == 429 => Failure::Throttled,
        "UnauthorizedOperation"
        | "AccessDenied"
        | "AccessDeniedException"
        | "Blocked"
        | "OptInRequired"
        | "PendingVerification" => with(Trouble::Denied, shown),
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
        | "UnrecognizedClientException" => with(Trouble::Credentials, shown),
        _ => with(Trouble::Failed, shown),
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
