//! Amazon EC2 Auto Scaling: the groups of a cluster with all their instances.
//!
//! A group belongs to the cluster by its tag `KubernetesCluster`, and to the InstanceGroup in its name, as in kOps. A
//! member is an instance that EC2 lists too, with the tags of this cluster and InstanceGroup. An instance can write
//! neither. The tags in the responses are checked again. How one query becomes calls:
//! - the groups with their instances, and those of the inventory;
//! - then the warm pool of each group that has one, and the launch templates that a group uses in the newest or default
//!   version, which only EC2 knows.
//!
//! A failed call fails the query: a group without its warm pool would be a wrong answer. No retries: the caller queries
//! again.

mod definition;
mod group;
mod inventory;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use aws_sdk_autoscaling::types::{AutoScalingGroup, Filter, Instance};
use futures::{StreamExt as _, TryFutureExt as _, TryStreamExt as _, stream, try_join};
use tidewaiter_api::{ClusterName, InstanceGroupName};
use tidewaiter_kit::CloudCalls;
use tracing::debug;

use super::call::pages;
use super::instance::{CLUSTER_TAG, InstanceId};
use crate::failure::{Failure, Kind};
use crate::groups::{CloudGroup, CloudGroups, GroupsUnavailable, in_time};
use crate::refusal::{Refusal, UnavailableCause};
use definition::{Definition, Versions};
use inventory::Inventory;

/// Lists the groups with their instances. The name is that of the IAM action.
pub const DESCRIBE_GROUPS: &str = "autoscaling:DescribeAutoScalingGroups";
/// Lists the instances of one group's warm pool.
pub const DESCRIBE_WARM_POOL: &str = "autoscaling:DescribeWarmPool";
/// Reads the newest and the default version of launch templates.
pub const DESCRIBE_LAUNCH_TEMPLATES: &str = "ec2:DescribeLaunchTemplates";

/// The maximum number of pages of one listing: 10,000 groups, or 5,000 instances of one warm pool.
const MAX_PAGES: usize = 100;

/// The maximum page size for groups and instances.
const GROUPS_PAGE: i32 = 100;
const INSTANCES_PAGE: i32 = 1_000;

/// The maximum number of launch template ids in one call of EC2.
const MAX_TEMPLATES: usize = 200;

/// The maximum number of warm pools that are queried concurrently.
const AT_ONCE: usize = 8;

/// The Auto Scaling groups of a cluster.
#[derive(Debug)]
pub struct AutoScaling {
    groups: aws_sdk_autoscaling::Client,
    ec2: aws_sdk_ec2::Client,
    inventory: Inventory,
    cluster: ClusterName,
    calls: CloudCalls,
}

/// The cluster's groups by name.
type Groups = BTreeMap<String, (InstanceGroupName, AutoScalingGroup)>;

impl AutoScaling {
    /// A provider for the groups of `cluster`. Create the clients with [`groups_client`](super::groups_client) and
    /// [`client`](super::client), whose timeouts bound each call.
    #[must_use]
    pub fn new(
        groups: aws_sdk_autoscaling::Client,
        ec2: aws_sdk_ec2::Client,
        cluster: ClusterName,
        calls: CloudCalls,
    ) -> Self {
        Self {
            inventory: Inventory::new(ec2.clone(), cluster.clone(), calls.clone()),
            groups,
            ec2,
            cluster,
            calls,
        }
    }

    async fn ask(&self) -> Result<Vec<CloudGroup>, Refusal> {
        let (groups, changes) = try_join!(self.described(), self.inventory.changes())?;
        let (mut pools, versions) = try_join!(self.warm_pools(&groups), self.versions(&groups))?;
        let of_groups = groups.values().flat_map(|(_, group)| group.instances());
        let listed = of_groups
            .chain(pools.values().flatten())
            .filter_map(Instance::instance_id);
        let listed: BTreeSet<InstanceId> = listed.filter_map(InstanceId::parse).collect();
        let known = self.inventory.known(&listed, changes).await?;
        let mut detached = group::detached(&known);
        let read = groups.into_iter().map(|(name, (instance_group, group))| {
            let pool = pools.remove(&name).unwrap_or_default();
            let of_group = |id: &InstanceId| {
                known
                    .of(instance_group.as_str(), id)
                    .map(|present| &present.provider_id)
            };
            let detached = detached.remove(instance_group.as_str()).unwrap_or_default();
            group::read(name, &instance_group, &group, &pool, of_group, detached, &versions)
        });
        let mut read = read.collect::<Result<Vec<_>, _>>()?;
        read.extend(group::unmanaged(&read, &known));
        Ok(read)
    }

    /// The groups that belong to the cluster and name an `InstanceGroup`.
    async fn described(&self) -> Result<Groups, Refusal> {
        let ours = Filter::builder()
            .name(format!("tag:{CLUSTER_TAG}"))
            .values(self.cluster.as_str())
            .build();
        let listed = pages(DESCRIBE_GROUPS, MAX_PAGES, &self.calls, |token| {
            let call = self.groups.describe_auto_scaling_groups().filters(ours.clone());
            let call = call.max_records(GROUPS_PAGE).set_next_token(token);
            async move {
                let answer = call.send().await?;
                Ok((answer.auto_scaling_groups.unwrap_or_default(), answer.next_token))
            }
        });
        let listed = listed.await.map_err(|failure| failure.refusal())?;
        let mut groups = Groups::new();
        for group in listed {
            let name = group.auto_scaling_group_name().unwrap_or_default().to_owned();
            let Some(instance_group) = group::instance_group(&group, &self.cluster) else {
                debug!(
                    group = name,
                    "an Auto Scaling group belongs to no InstanceGroup of the cluster"
                );
                continue;
            };
            groups.insert(name, (instance_group, group));
        }
        Ok(groups)
    }

    /// The instances of the warm pools, by the group's name.
    async fn warm_pools(&self, groups: &Groups) -> Result<HashMap<String, Vec<Instance>>, Refusal> {
        let having = groups
            .iter()
            .filter(|(_, (_, group))| group.warm_pool_configuration().is_some());
        let asked: Vec<_> = having.map(|(name, _)| self.warm_pool(name)).collect();
        stream::iter(asked).buffer_unordered(AT_ONCE).try_collect().await
    }

    async fn warm_pool(&self, group: &str) -> Result<(String, Vec<Instance>), Refusal> {
        let listed = pages(DESCRIBE_WARM_POOL, MAX_PAGES, &self.calls, |token| {
            let call = self.groups.describe_warm_pool().auto_scaling_group_name(group);
            let call = call.set_next_token(token);
            async move {
                let answer = call.send().await?;
                Ok((answer.instances.unwrap_or_default(), answer.next_token))
            }
        });
        let instances = listed.await.map_err(|failure| failure.refusal())?;
        Ok((group.to_owned(), instances))
    }

    /// The current versions behind `$Latest` and `$Default`, for the templates that a group refers to that way. EC2
    /// fails the whole call if one template does not exist: it is found by bisection and left out. kOps permits its
    /// control planes to describe the groups but not the templates, so a denied call does not fail the query.
    async fn versions(&self, groups: &Groups) -> Result<Versions, Refusal> {
        let named = groups
            .values()
            .flat_map(|(_, group)| Definition::of(group).to_resolve());
        let ids: Vec<String> = named.collect::<BTreeSet<_>>().into_iter().map(str::to_owned).collect();
        let mut parts: Vec<Vec<String>> = ids.chunks(MAX_TEMPLATES).map(<[_]>::to_vec).collect();
        let mut versions = Versions::default();
        while let Some(part) = parts.pop() {
            let listed = pages(DESCRIBE_LAUNCH_TEMPLATES, MAX_PAGES, &self.calls, |token| {
                let call = self.ec2.describe_launch_templates();
                let call = call.set_launch_template_ids(Some(part.clone()));
                let call = call.set_next_token(token);
                async move {
                    let answer = call.send().await?;
                    Ok((answer.launch_templates.unwrap_or_default(), answer.next_token))
                }
            });
            match listed.await {
                Ok(templates) => versions.add(&templates),
                Err(Failure {
                    kind: Kind::UnknownIds { .. },
                    ..
                }) if part.len() > 1 => {
                    let (left, right) = part.split_at(part.len() / 2);
                    parts.extend([left.to_vec(), right.to_vec()]);
                }
                Err(Failure {
                    kind: Kind::UnknownIds { .. },
                    ..
                }) => debug!(template = ?part, "a launch template no longer exists"),
                Err(Failure {
                    kind:
                        Kind::Unavailable {
                            cause: UnavailableCause::Denied,
                            detail,
                        },
                    ..
                }) => {
                    debug!(detail, "permission to describe launch templates is missing");
                    return Ok(Versions::denied());
                }
                Err(failure) => return Err(failure.refusal()),
            }
        }
        Ok(versions)
    }
}

#[async_trait]
impl CloudGroups for AutoScaling {
    async fn groups(&self) -> Result<Vec<CloudGroup>, GroupsUnavailable> {
        in_time(Box::pin(self.ask().map_err(GroupsUnavailable::from))).await
    }

    fn location(&self) -> Option<String> {
        let region = self.groups.config().region();
        region.map(|region| format!("region {region}"))
    }
}
