//! Amazon EC2: identifies instances with `DescribeInstances`. Auto Scaling groups are in [`groups`].
//!
//! The group comes from the tag `kops.k8s.io/instancegroup`, which a node cannot write. Only well-formed ids are sent,
//! and never an empty list, which EC2 treats as "all".
//!
//! The calls of a query of up to 1,000 ids:
//! - One call by id for all of them. EC2 rejects the whole call because of one unknown id, and names it: that id is
//!   refused, the others are queried again without it, and from then on it is queried separately with the filter
//!   `instance-id`, which ignores unknown ids. If EC2 names none, the filter is used for all.
//! - EC2 fails a call that names an instance of a failing zone. A failed call is therefore split by zone, and then into
//!   halves, until the failing part is isolated or all parts fail; the zone or the id is queried separately for a
//!   while.
//! - When everything of a query failed, in several zones, the next ones are one call for one part, until one succeeds:
//!   then the other parts follow.
//! - No retries: the controller queries a refused Node again, with a backoff that knows how often it has failed.

mod call;
pub(crate) mod connect;
pub mod groups;
mod instance;
mod query;

use std::collections::HashSet;

use async_trait::async_trait;
use aws_sdk_ec2::types::Instance;
use futures::future::join_all;
use tidewaiter_api::ClusterName;
use tidewaiter_kit::{CloudCalls, SharedClock};
use tracing::debug;

pub use aws_sdk_ec2::Client;
pub use call::API;
pub use connect::{RegionError, client, groups_client, http_client, region};
pub use groups::AutoScaling;

use crate::failure::{Failure, Kind};
use crate::identifier::{AnswerFn, Claim, Identifier};
use call::{By, Caller};
use instance::Reading;
use query::{MAX_IDS, Outage, Part, Query, Suspects};

/// The maximum number of calls in one query, whatever EC2 responds: finding one bad id among 1,000 takes about 20.
const MAX_CALLS: usize = 32;

/// The instances of a cluster on EC2.
#[derive(Debug)]
pub struct Ec2 {
    caller: Caller,
    reading: Reading,
    suspects: Suspects,
    outage: Outage,
}

impl Ec2 {
    /// A provider for the instances of `cluster`. Create the client with [`client`], whose timeouts bound each query.
    #[must_use]
    pub fn new(client: aws_sdk_ec2::Client, cluster: ClusterName, clock: SharedClock, calls: CloudCalls) -> Self {
        Self {
            caller: Caller::new(client, calls),
            reading: Reading {
                cluster,
                tag_labels: false,
            },
            suspects: Suspects::new(clock),
            outage: Outage::default(),
        }
    }

    /// Also reads the labels in an instance's tags (`k8s.io/cluster-autoscaler/node-template/label/KEY`) into its
    /// [`Identity`](crate::Identity).
    #[must_use]
    pub fn with_tag_labels(mut self) -> Self {
        self.reading.tag_labels = true;
        self
    }

    /// Queries `part`. A failed part is split and queried again while that can isolate the failing ids. Returns whether
    /// all parts of a split failed.
    async fn settle(&self, part: Part, query: &Query<'_>) -> bool {
        let (mut families, mut any_hopeless) = (vec![vec![part]], false);
        while let Some(family) = families.pop() {
            let size = family.len();
            let failed = join_all(family.into_iter().map(|part| self.ask(part, query))).await;
            let failed: Vec<(Part, Failure)> = failed.into_iter().filter_map(Result::err).collect();
            // If all parts fail, the failure does not depend on the ids.
            let hopeless = size > 1 && failed.len() == size;
            any_hopeless |= hopeless;
            for (part, failure) in failed {
                if failure.kind == Kind::Timeout && !hopeless {
                    self.suspect_a_late_zone(&part, query);
                }
                if hopeless || !failure.may_depend_on_target() || query.call_count.calls() >= MAX_CALLS {
                    query.refuse(&part.ids, &failure.refusal());
                } else if let Some(parts) = self.split(&part, query, size > 1) {
                    families.push(parts);
                } else {
                    // A single id fails while other parts succeed: it is the cause. An id that was queried alone need
                    // not be.
                    if size > 1 {
                        self.suspects.suspect_ids(part.ids.iter());
                    }
                    query.refuse(&part.ids, &failure.refusal());
                }
            }
        }
        any_hopeless
    }

    /// During an outage, queries ids of one zone, and refuses all if that fails. Returns the remaining parts.
    async fn probe(&self, parts: Vec<Part>, query: &Query<'_>) -> Vec<Part> {
        let Some((part, parts)) = self.outage.part(&parts, query) else {
            return parts;
        };
        let Err((part, failure)) = self.ask(part, query).await else {
            return parts;
        };
        for part in parts.iter().chain([&part]) {
            query.refuse(&part.ids, &failure.refusal());
        }
        Vec::new()
    }

    /// A timeout delays every claim in the same call, and EC2 does not say which id caused it. If all ids are of one
    /// zone, that zone is queried separately from now on.
    fn suspect_a_late_zone(&self, part: &Part, query: &Query<'_>) {
        if let [(zone, _)] = &query.by_zone(&part.ids)[..] {
            self.suspects.suspect_zone(zone);
        }
    }

    /// Splits a failed part by zone if it has several, otherwise into halves. `None` for a single id.
    ///
    /// `others_fared_well`: the other parts of the same split (other zones, or the other half) succeeded.
    fn split(&self, part: &Part, query: &Query<'_>, others_fared_well: bool) -> Option<Vec<Part>> {
        if part.ids.len() < 2 {
            return None;
        }
        let mut zones = query.by_zone(&part.ids);
        let parts = match zones.len() {
            0 | 1 => {
                if let (true, Some(zone)) = (others_fared_well, zones.pop()) {
                    self.suspects.suspect_zone(&zone.0);
                }
                let (left, right) = part.ids.split_at(part.ids.len() / 2);
                vec![left.to_vec(), right.to_vec()]
            }
            _ => zones.into_iter().map(|(_, ids)| ids).collect(),
        };
        debug!(ids = part.ids.len(), parts = parts.len(), "splits a call that failed");
        Some(parts.into_iter().map(|ids| Part { ids, by: part.by }).collect())
    }

    /// Queries the ids of `part` and answers them. Unknown ids cost the others one more call.
    ///
    /// # Errors
    /// The unanswered ids, and the failure.
    async fn ask(&self, part: Part, query: &Query<'_>) -> Result<(), (Part, Failure)> {
        let Part { mut ids, mut by } = part;
        let mut tried = 0;
        while !ids.is_empty() {
            tried += 1;
            match self.caller.describe(by, &ids, &query.call_count).await {
                Ok(instances) => {
                    let found: HashSet<&str> = instances.iter().filter_map(Instance::instance_id).collect();
                    let (known, unknown): (Vec<_>, Vec<_>) = ids.iter().partition(|id| found.contains(id.as_str()));
                    self.outage.end();
                    self.suspects.clear(known.into_iter(), query);
                    self.suspects.suspect_ids(unknown.into_iter());
                    query.answer(&ids, &instances, &self.reading);
                    return Ok(());
                }
                Err(Failure {
                    kind: Kind::UnknownIds { message },
                    ..
                }) if by == By::Id => {
                    let named = instance::named_in(&message);
                    let (unknown, rest): (Vec<_>, Vec<_>) = ids.into_iter().partition(|id| named.contains(id.as_str()));
                    // EC2 named unknown ids twice, or named none: the filter ignores unknown ids.
                    if unknown.is_empty() || tried > 1 {
                        by = By::Filter;
                    }
                    self.suspects.suspect_ids(unknown.iter());
                    query.not_found(&unknown);
                    ids = rest;
                }
                Err(failure) => return Err((Part { ids, by }, failure)),
            }
        }
        Ok(())
    }
}

#[async_trait]
impl Identifier for Ec2 {
    fn scheme(&self) -> &'static str {
        "aws"
    }

    fn max_batch(&self) -> usize {
        MAX_IDS
    }

    async fn identify(&self, claims: &[Claim], answers: &AnswerFn<'_>) {
        let query = Query::new(claims, answers);
        let parts = self.suspects.divide(&query);
        let parts = self.probe(parts, &query).await;
        let hopeless = join_all(parts.into_iter().map(|part| self.settle(part, &query))).await;
        if hopeless.contains(&true) && !query.is_answered() && query.has_several_zones() {
            self.outage.begin();
        }
    }
}
