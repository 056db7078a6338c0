//! The calls, each counted, and the pagination.

use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_ec2::Client;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_ec2::types::{Filter, Instance, Reservation};
use tidewaiter_kit::CloudCalls;
use tracing::debug;

use super::instance::InstanceId;
use crate::failure::Failure;
use crate::page_tokens::PageTokens;

/// The call that describes instances, as the IAM action.
pub const API: &str = "ec2:DescribeInstances";

/// The maximum number of values in a filter of EC2.
pub(super) const MAX_FILTER_VALUES: usize = 200;

/// Limits the pages of one call. EC2 does not paginate calls by id, so this is only a safeguard.
const MAX_PAGES: usize = 20;

/// The selection of instances by a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By id: an unknown id fails the call.
    Id,
    /// By a filter's values: an unknown id is missing from the response.
    Filter,
}

/// A page of a listing: its rows, and the token of the next page.
type Page<T> = (Vec<T>, Option<String>);

/// The number of calls that one query has made.
#[derive(Debug, Default)]
pub(super) struct CallCount(AtomicUsize);

#[derive(Debug)]
pub(super) struct Caller {
    client: Client,
    calls: CloudCalls,
}

impl CallCount {
    fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn calls(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl Caller {
    pub(super) fn new(client: Client, calls: CloudCalls) -> Self {
        Self { client, calls }
    }

    /// Describes `ids`, which must not be empty: EC2 would list everything.
    pub(super) async fn describe(
        &self,
        by: By,
        ids: &[InstanceId],
        call_count: &CallCount,
    ) -> Result<Vec<Instance>, Failure> {
        let mut instances = Vec::with_capacity(ids.len());
        let at_most = match by {
            By::Id => ids.len(),
            By::Filter => MAX_FILTER_VALUES,
        };
        for ids in ids.chunks(at_most.max(1)) {
            self.pages(by, ids, call_count, &mut instances).await?;
        }
        Ok(instances)
    }

    async fn pages(
        &self,
        by: By,
        ids: &[InstanceId],
        call_count: &CallCount,
        instances: &mut Vec<Instance>,
    ) -> Result<(), Failure> {
        let listed = pages(API, MAX_PAGES, &self.calls, |token| {
            call_count.one_more();
            let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
            let call = self.client.describe_instances().set_next_token(token);
            let call = match by {
                By::Id => call.set_instance_ids(Some(ids)),
                By::Filter => call.filters(Filter::builder().name("instance-id").set_values(Some(ids)).build()),
            };
            async move {
                let answer = call.send().await?;
                Ok((in_reservations(answer.reservations), answer.next_token))
            }
        });
        instances.extend(listed.await?);
        Ok(())
    }
}

/// The instances in a response of `DescribeInstances`.
pub(super) fn in_reservations(reservations: Option<Vec<Reservation>>) -> Vec<Instance> {
    let reservations = reservations.unwrap_or_default().into_iter();
    reservations
        .flat_map(|reservation| reservation.instances.unwrap_or_default())
        .collect()
}

/// The rows of all pages, at most `at_most` pages. `ask` requests the page of a token.
pub(super) async fn pages<T, E, F>(
    api: &'static str,
    at_most: usize,
    calls: &CloudCalls,
    ask: impl Fn(Option<String>) -> F,
) -> Result<Vec<T>, Failure>
where
    E: ProvideErrorMetadata + Error + 'static,
    F: Future<Output = Result<Page<T>, SdkError<E, HttpResponse>>>,
{
    let mut rows = Vec::new();
    let mut tokens = PageTokens::new(at_most);
    let mut token = None;
    loop {
        let result = ask(token).await.map_err(|error| Failure::of_aws(api, &error));
        let outcome = result.as_ref().map_or_else(Failure::outcome, |_| "ok");
        calls.count(api, outcome);
        debug!(api, outcome, "asked AWS");
        let (page, next) = result?;
        rows.extend(page);
        token = tokens.next(next).map_err(|why| Failure::unusable(api, why))?;
        if token.is_none() {
            return Ok(rows);
        }
    }
}
