//! The instances of the cluster on EC2. They show whether an instance that an Auto Scaling group lists still exists,
//! and for which InstanceGroup it was created, and which instances are in no Auto Scaling group.
//!
//! All instances of a large cluster are megabytes, so they are listed every [`QUERIES`] queries only. What changes a
//! verdict within that time is queried each time: instances that are being terminated, instances that are detached or
//! Karpenter's, and those that a group lists and that are not known.

use std::collections::{BTreeSet, HashMap};

use aws_sdk_ec2::Client;
use aws_sdk_ec2::types::{Filter, Instance, InstanceStateName};
use futures::try_join;
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_api::{ClusterName, ProviderId};
use tidewaiter_kit::CloudCalls;
use tokio::sync::{Mutex, MutexGuard};

use super::{INSTANCES_PAGE, MAX_PAGES};
use crate::aws::call::{API, MAX_FILTER_VALUES, in_reservations, pages};
use crate::aws::instance::{CLUSTER_TAG, InstanceId, check_cluster, tag};
use crate::failure::Failure;
use crate::refusal::Refusal;

/// The tag that kOps sets on an instance that it detaches from its group to replace it; the value is the group's name.
/// Source: `tagNameDetachedInstance` of kOps (`upup/pkg/fi/cloudup/awsup/aws_cloud.go`).
const DETACHED_TAG: &str = "kops.k8s.io/detached-from-asg";

/// The tags of Karpenter: the second one is that of versions before 0.32.
const KARPENTER_TAGS: [&str; 2] = ["karpenter.sh/nodepool", "karpenter.sh/provisioner-name"];

/// The tags of instances that no Auto Scaling group may list.
const MARKS: [&str; 3] = [DETACHED_TAG, KARPENTER_TAGS[0], KARPENTER_TAGS[1]];

/// The states of a member. Source: `findInstances` of kOps (in the same file).
const PRESENT: [&str; 4] = ["pending", "running", "stopping", "stopped"];

/// EC2 lists an instance in these states for about an hour.
const GONE: [&str; 2] = ["shutting-down", "terminated"];

/// After so many queries, all instances are listed again: about every five minutes.
const QUERIES: u32 = 12;

/// Queries EC2 for the instances of a cluster.
#[derive(Debug)]
pub(super) struct Inventory {
    ec2: Client,
    cluster: ClusterName,
    calls: CloudCalls,
    known: Mutex<Known>,
}

/// The instances that are present.
#[derive(Debug, Default)]
pub(super) struct Known {
    instances: HashMap<InstanceId, Present>,
    /// The number of queries that these have answered.
    queries: u32,
}

/// An instance that is present and names an InstanceGroup of the cluster.
#[derive(Debug)]
pub(super) struct Present {
    /// The value of its tag.
    pub instance_group: Box<str>,
    pub provider_id: ProviderId,
    pub detached: bool,
    /// True if Karpenter made it.
    pub karpenter: bool,
}

/// The part of the inventory that is queried each time.
pub(super) struct Changes {
    marked: Vec<(InstanceId, Present)>,
    gone: Vec<InstanceId>,
}

impl Inventory {
    pub(super) fn new(ec2: Client, cluster: ClusterName, calls: CloudCalls) -> Self {
        Self {
            ec2,
            cluster,
            calls,
            known: Mutex::default(),
        }
    }

    pub(super) async fn changes(&self) -> Result<Changes, Refusal> {
        let marks = filter("tag-key", MARKS);
        let gone = |id: InstanceId, _: &Instance| Ok(Some(id));
        let (marked, gone) = try_join!(self.list(&PRESENT, Some(marks), present), self.list(&GONE, None, gone))?;
        Ok(Changes { marked, gone })
    }

    /// The instances that are present, of which `listed` are those of the groups.
    pub(super) async fn known(
        &self,
        listed: &BTreeSet<InstanceId>,
        Changes { marked, gone }: Changes,
    ) -> Result<MutexGuard<'_, Known>, Refusal> {
        let mut known = self.known.lock().await;
        let is_unknown = |known: &Known, id: &InstanceId| !known.instances.contains_key(id) && !gone.contains(id);
        let unknown: Vec<&InstanceId> = listed.iter().filter(|id| is_unknown(&known, id)).collect();
        if known.queries.is_multiple_of(QUERIES) || unknown.len() > MAX_FILTER_VALUES {
            let all = self.list(&PRESENT, None, present).await?;
            known.instances = all.into_iter().collect();
            known.queries = 0;
        } else if !unknown.is_empty() {
            let named = filter("instance-id", unknown.into_iter().map(InstanceId::as_str));
            let found = self.list(&PRESENT, Some(named), present).await?;
            known.instances.extend(found);
        }
        known.queries += 1;
        known.instances.extend(marked);
        for id in &gone {
            known.instances.remove(id);
        }
        Ok(known)
    }

    /// The instances of the cluster in one of these states that `more` lets through, as far as `read` takes them. The
    /// filters prove nothing: state and cluster are checked again.
    async fn list<T>(
        &self,
        states: &[&str],
        more: Option<Filter>,
        read: fn(InstanceId, &Instance) -> Result<Option<T>, Refusal>,
    ) -> Result<Vec<T>, Refusal> {
        let mut filters = vec![
            filter(&format!("tag:{CLUSTER_TAG}"), [self.cluster.as_str()]),
            filter("instance-state-name", states.iter().copied()),
        ];
        filters.extend(more);
        let is_ours = |id: &InstanceId, instance: &Instance| {
            let state = instance
                .state()
                .and_then(|state| state.name())
                .map(InstanceStateName::as_str);
            state.is_some_and(|state| states.contains(&state)) && check_cluster(id, instance, &self.cluster).is_ok()
        };
        let read = |instance: &Instance| {
            let id = instance.instance_id().and_then(InstanceId::parse)?;
            is_ours(&id, instance)
                .then(|| read(id, instance))
                .and_then(Result::transpose)
        };
        let listed = pages(API, MAX_PAGES, &self.calls, |token| {
            let call = self.ec2.describe_instances().set_filters(Some(filters.clone()));
            let call = call.max_results(INSTANCES_PAGE).set_next_token(token);
            let read = &read;
            async move {
                let answer = call.send().await?;
                // Read page by page: an instance of the SDK is many times as large.
                let rows = in_reservations(answer.reservations);
                Ok((rows.iter().filter_map(read).collect(), answer.next_token))
            }
        });
        let listed = listed.await.map_err(|failure: Failure| failure.refusal())?;
        listed.into_iter().collect()
    }
}

impl Known {
    /// The instance, if it is present and was created for this InstanceGroup.
    pub(super) fn of(&self, instance_group: &str, id: &InstanceId) -> Option<&Present> {
        self.instances
            .get(id)
            .filter(|present| *present.instance_group == *instance_group)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (&InstanceId, &Present)> {
        self.instances.iter()
    }
}

/// An instance that names no InstanceGroup is no member of any group.
fn present(id: InstanceId, instance: &Instance) -> Result<Option<(InstanceId, Present)>, Refusal> {
    let Some(instance_group) = tag(instance, INSTANCE_GROUP_LABEL) else {
        return Ok(None);
    };
    let zone = instance.placement().and_then(|placement| placement.availability_zone());
    let provider_id = zone.and_then(|zone| id.provider_id(zone));
    let present = Present {
        instance_group: instance_group.into(),
        provider_id: provider_id.ok_or_else(|| Failure::unusable(API, format!("{id} has no valid zone")).refusal())?,
        detached: tag(instance, DETACHED_TAG).is_some(),
        karpenter: KARPENTER_TAGS.iter().any(|key| tag(instance, key).is_some()),
    };
    Ok(Some((id, present)))
}

fn filter<'a>(name: &str, values: impl IntoIterator<Item = &'a str>) -> Filter {
    let values = values.into_iter().map(str::to_owned).collect();
    Filter::builder().name(name).set_values(Some(values)).build()
}
