//! One call of `DescribeInstances`, counted, and what its failure means.
//!
//! What is told of a failure is EC2's error code or the system's word for a broken connection: never EC2's own message, which
//! may quote the request, and nothing that differs from call to call.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata as _, SdkError};
use aws_sdk_ec2::operation::describe_instances::DescribeInstancesError;
use aws_sdk_ec2::types::{Filter, Instance};
use tidewaiter_kit::CloudCalls;
use tracing::{debug, warn};

use super::API;
use super::instance_id::InstanceId;
use super::question::Question;
use crate::refusal::{Refusal, Trouble};

/// As many values as EC2 takes in one filter.
pub(super) const MAX_FILTER_VALUES: usize = 200;

/// EC2 answers ids without pages; should it page all the same, this is where we stop.
const MAX_PAGES: usize = 20;

const LATE: &str = "no answer in time";

/// How ids are named in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// As ids: one that is unknown fails the call.
    Id,
    /// As values of a filter: one that is unknown is left out of the answer.
    Filter,
}

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

    fn outcome(&self) -> &'static str {
        match self {
            Self::Unknown { .. } => "not_found",
            Self::Throttled => "throttled",
            Self::Late => "timeout",
            Self::Trouble { trouble, .. } => match trouble {
                Trouble::Denied => "denied",
                Trouble::Credentials => "no_credentials",
                Trouble::Unreachable => "unreachable",
                Trouble::Failed => "failed",
                Trouble::Unusable => "unusable",
            },
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

#[derive(Debug)]
pub(super) struct Caller {
    client: Client,
    calls: CloudCalls,
}

impl Caller {
    pub(super) fn new(client: Client, calls: CloudCalls) -> Self {
        Self { client, calls }
    }

    /// What EC2 lists for `ids`, which are not empty: it would list everything.
    pub(super) async fn describe(
        &self,
        by: By,
        ids: &[InstanceId],
        question: &Question<'_>,
    ) -> Result<Vec<Instance>, Failure> {
        let mut instances = Vec::with_capacity(ids.len());
        let at_most = match by {
            By::Id => ids.len(),
            By::Filter => MAX_FILTER_VALUES,
        };
        for ids in ids.chunks(at_most.max(1)) {
            self.pages(by, ids, question, &mut instances).await?;
        }
        Ok(instances)
    }

    async fn pages(
        &self,
        by: By,
        ids: &[InstanceId],
        question: &Question<'_>,
        instances: &mut Vec<Instance>,
    ) -> Result<(), Failure> {
        let mut token = None;
        for _ in 0..MAX_PAGES {
            question.count_call();
            let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
            let call = self.client.describe_instances().set_next_token(token);
            let call = match by {
                By::Id => call.set_instance_ids(Some(ids)),
                By::Filter => call.filters(Filter::builder().name("instance-id").set_values(Some(ids)).build()),
            };
            let result = call.send().await.map_err(|error| failure(&error));
            let outcome = result.as_ref().map_or_else(Failure::outcome, |_| "ok");
            self.calls.count(API, outcome);
            debug!(outcome, ?by, "asked EC2");
            let answer = result?;
            let reservations = answer.reservations.unwrap_or_default().into_iter();
            instances.extend(reservations.flat_map(|reservation| reservation.instances.unwrap_or_default()));
            token = answer.next_token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(());
            }
        }
        Err(Failure::Trouble {
            trouble: Trouble::Unusable,
            detail: format!("more than {MAX_PAGES} pages"),
        })
    }
}

fn failure(error: &SdkError<DescribeInstancesError, HttpResponse>) -> Failure {
    let trouble = |trouble, detail: &str| Failure::Trouble {
        trouble,
        detail: detail.to_owned(),
    };
    // The SDK reports missing credentials as a request that could not be sent.
    if causes(error).any(<dyn Error>::is::<CredentialsError>) {
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

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error| (*error).source())
}

/// What the innermost cause says, made safe to show: `Connection refused (os error 111)`.
fn system_word(error: &(dyn Error + 'static)) -> String {
    let innermost = causes(error).last().map(ToString::to_string).unwrap_or_default();
    innermost.chars().flat_map(char::escape_debug).take(120).collect()
}
