//! Amazon EC2 Auto Scaling: the groups of a cluster with all their instances.
//!
//! A group belongs to the cluster by its tag `KubernetesCluster`, which an instance cannot write. The tags in the
//! response are checked again. How one query becomes calls:
//! - the groups with their instances, and the instances that were detached to be replaced, which only EC2 knows;
//! - then the warm pool of each group that has one, and the launch templates that a group uses in the newest or default
//!   version, which only EC2 knows.
//!
//! A failed call fails the query: a group without its warm pool would be a wrong answer. No retries: the caller queries
//! again.

mod definition;
mod group;

use std::collections::{BTreeMap, BTreeSet, HashMap};

use async_trait::async_trait;
use aws_sdk_autoscaling::types::{AutoScalingGroup, Filter, Instance};
use futures::{StreamExt as _, TryFutureExt as _, TryStreamExt as _, stream, try_join};
use tidewaiter_api::{ClusterName, InstanceGroupName, ProviderId};
use tidewaiter_kit::CloudCalls;
use tracing::debug;

use super::API;
use super::call::{in_reservations, pages};
use super::failure::{Failure, unusable};
use super::instance::{CLUSTER_TAG, check_cluster, check_state, tag};
use super::instance_id::InstanceId;
use crate::groups::{CloudGroup, CloudGroups, GroupsUnavailable, in_time};
use crate::refusal::{Refusal, UnavailableCause};
use definition::{Definition, Versions};

/// Lists the groups with their instances. The name is that of the IAM action.
pub const DESCRIBE_GROUPS: &str = "autoscaling:DescribeAutoScalingGroups";
/// Lists the instances of one group's warm pool.
pub const DESCRIBE_WARM_POOL: &str = "autoscaling:DescribeWarmPool";
/// Reads the newest and the default version of launch templates.
pub const DESCRIBE_LAUNCH_TEMPLATES: &str = "ec2:DescribeLaunchTemplates";

/// The tag that kOps sets on an instance that it detaches from its group to replace it; the value is the group's name.
/// Source: `tagNameDetachedInstance` of kOps (`upup/pkg/fi/cloudup/awsup/aws_cloud.go`).
const DETACHED_TAG: &str = "kops.k8s.io/detached-from-asg";

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
    cluster: ClusterName,
    calls: CloudCalls,
}

/// The cluster's groups by name.
type Groups = BTreeMap<String, (InstanceGroupName, AutoScalingGroup)>;

/// Detached instances with the providerIDs of their Nodes, by the name of the group.
type Detached = HashMap<String, Vec<(InstanceId, ProviderId)>>;

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
            groups,
            ec2,
            cluster,
            calls,
        }
    }

    async fn ask(&self) -> Result<Vec<CloudGroup>, Refusal> {
        let (groups, mut detached) = try_join!(self.described(), self.detached())?;
        let (mut pools, versions) = try_join!(self.warm_pools(&groups), self.versions(&groups))?;
        let read = groups.into_iter().map(|(name, (instance_group, group))| {
            let pool = pools.remove(&name).unwrap_or_default();
            let detached = detached.remove(&name).unwrap_or_default();
            group::read(name, instance_group, &group, &pool, detached, &versions)
        });
        read.collect()
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
        let listed = listed.await.map_err(|failure| failure.refusal(DESCRIBE_GROUPS))?;
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

    /// The running instances that were detached from a group to be replaced, by the group's name.
    async fn detached(&self) -> Result<Detached, Refusal> {
        let filter = |name: &str, values: &[&str]| {
            let values = values.iter().map(|value| (*value).to_owned()).collect();
            let filter = aws_sdk_ec2::types::Filter::builder().name(name);
            filter.set_values(Some(values)).build()
        };
        let filters = vec![
            filter(&format!("tag:{CLUSTER_TAG}"), &[self.cluster.as_str()]),
            filter("tag-key", &[DETACHED_TAG]),
            filter("instance-state-name", &["pending", "running"]),
        ];
        let listed = pages(API, MAX_PAGES, &self.calls, |token| {
            let call = self.ec2.describe_instances().set_filters(Some(filters.clone()));
            let call = call.max_results(INSTANCES_PAGE).set_next_token(token);
            async move {
                let answer = call.send().await?;
                Ok((in_reservations(answer.reservations), answer.next_token))
            }
        });
        let mut detached = Detached::new();
        for instance in listed.await.map_err(|failure| failure.refusal(API))? {
            let id = instance.instance_id().and_then(InstanceId::parse);
            let (Some(id), Some(group)) = (id, tag(&instance, DETACHED_TAG)) else {
                continue;
            };
            if check_state(&id, &instance).is_err() || check_cluster(&id, &instance, &self.cluster).is_err() {
                continue;
            }
            let zone = instance.placement().and_then(|placement| placement.availability_zone());
            let provider_id = zone.and_then(|zone| id.provider_id(zone));
            let provider_id = provider_id.ok_or_else(|| unusable(API, format!("{id} has no valid zone")))?;
            detached.entry(group.to_owned()).or_default().push((id, provider_id));
        }
        Ok(detached)
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
        let instances = listed.await.map_err(|failure| failure.refusal(DESCRIBE_WARM_POOL))?;
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
                Err(Failure::Unknown { .. }) if part.len() > 1 => {
                    let (left, right) = part.split_at(part.len() / 2);
                    parts.extend([left.to_vec(), right.to_vec()]);
                }
                Err(Failure::Unknown { .. }) => debug!(template = ?part, "a launch template no longer exists"),
                Err(Failure::Unavailable {
                    cause: UnavailableCause::Denied,
                    detail,
                }) => {
                    debug!(detail, "permission to describe launch templates is missing");
                    return Ok(Versions::denied());
                }
                Err(failure) => return Err(failure.refusal(DESCRIBE_LAUNCH_TEMPLATES)),
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
