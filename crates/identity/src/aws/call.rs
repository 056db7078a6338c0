//! The calls of `DescribeInstances`, each counted, and pages read to their end.

use std::sync::atomic::{AtomicUsize, Ordering};

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{Filter, Instance};
use tidewaiter_kit::CloudCalls;
use tracing::debug;

use super::API;
use super::failure::Failure;
use super::instance_id::InstanceId;
use crate::refusal::Trouble;

/// As many values as EC2 takes in one filter.
pub(super) const MAX_FILTER_VALUES: usize = 200;

/// EC2 answers ids without pages; should it page all the same, this is where we stop.
const MAX_PAGES: usize = 20;

/// How ids are named in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// As ids: one that is unknown fails the call.
    Id,
    /// As values of a filter: one that is unknown is left out of the answer.
    Filter,
}

/// The calls that one question has cost so far.
#[derive(Debug, Default)]
pub(super) struct Spent(AtomicUsize);

#[derive(Debug)]
pub(super) struct Caller {
    client: Client,
    calls: CloudCalls,
}

impl Spent {
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

    /// What EC2 lists for `ids`, which are not empty: it would list everything.
    pub(super) async fn describe(&self, by: By, ids: &[InstanceId], spent: &Spent) -> Result<Vec<Instance>, Failure> {
        let mut instances = Vec::with_capacity(ids.len());
        let at_most = match by {
            By::Id => ids.len(),
            By::Filter => MAX_FILTER_VALUES,
        };
        for ids in ids.chunks(at_most.max(1)) {
            self.pages(by, ids, spent, &mut instances).await?;
        }
        Ok(instances)
    }

    async fn pages(
        &self,
        by: By,
        ids: &[InstanceId],
        spent: &Spent,
        instances: &mut Vec<Instance>,
    ) -> Result<(), Failure> {
        let mut token = None;
        for _ in 0..MAX_PAGES {
            spent.one_more();
            let ids = ids.iter().map(|id| id.as_str().to_owned()).collect();
            let call = self.client.describe_instances().set_next_token(token);
            let call = match by {
                By::Id => call.set_instance_ids(Some(ids)),
                By::Filter => call.filters(Filter::builder().name("instance-id").set_values(Some(ids)).build()),
            };
            let result = call.send().await.map_err(|error| Failure::of(&error));
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
