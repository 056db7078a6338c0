//! Reads one instance from a response of `DescribeInstances`. Pure.
//!
//! An instance without a field that EC2 always sets is refused as unusable, never guessed.

use std::collections::BTreeSet;
use std::net::IpAddr;

use aws_sdk_ec2::types::{Instance, InstanceLifecycleType, InstanceNetworkInterface, InstanceStateName};
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_api::{ClusterName, InstanceGroupName, Lifecycle};

use super::API;
use super::failure::unusable;
use super::instance_id::InstanceId;
use crate::identity::Identity;
use crate::refusal::{Mark, Refusal};

/// The tag that kOps sets on every instance of a cluster; the value is the cluster's name.
pub(super) const CLUSTER_TAG: &str = "KubernetesCluster";

/// The prefix of the newer tag's key, before the cluster's name; the value `owned` means that the instance belongs to
/// the cluster.
pub(super) const CLUSTER_TAG_PREFIX: &str = "kubernetes.io/cluster/";

/// The prefix of a tag's key before a label's key: cluster-autoscaler's format for the labels of a future node. kOps
/// writes all labels of a group this way, and its newer controller reads them from here.
const LABEL_TAG_PREFIX: &str = "k8s.io/cluster-autoscaler/node-template/label/";

/// The fields to read from each instance.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// Our cluster.
    pub(super) cluster: ClusterName,
    /// True if the labels in tags are read.
    pub(super) tag_labels: bool,
}

/// Reads the instance. The checks are in order of significance: running, ours, group.
///
/// # Errors
/// [`Refusal::NotRunning`], [`Refusal::ForeignProject`], [`Refusal::NotInGroup`], [`Refusal::Starting`] in place of
/// these two without the tag of an instance that is pending, or [`Refusal::Unavailable`] if a field is missing that EC2
/// always sets.
pub(super) fn identity(id: &InstanceId, instance: &Instance, reading: &Reading) -> Result<Identity, Refusal> {
    check_state(id, instance)?;
    let starting = instance.state().and_then(|state| state.name()) == Some(&InstanceStateName::Pending);
    // EC2 may list a new instance before its tags.
    let perhaps_untagged = |refusal| match refusal {
        Refusal::ForeignProject { theirs: None, .. } | Refusal::NotInGroup { value: None, .. } if starting => {
            Refusal::Starting {
                instance: id.to_string(),
            }
        }
        other => other,
    };
    check_cluster(id, instance, &reading.cluster).map_err(perhaps_untagged)?;
    let zone = instance
        .placement()
        .and_then(|placement| placement.availability_zone())
        .ok_or_else(|| unusable(API, format!("{id} has no zone")))?;
    Ok(Identity {
        instance: id.to_string(),
        group: group(id, instance).map_err(perhaps_untagged)?,
        starting,
        zone: zone.to_owned(),
        lifecycle: lifecycle(instance),
        names: names(id, instance),
        addresses: addresses(instance),
        tag_labels: if reading.tag_labels {
            tag_labels(instance)
        } else {
            Vec::new()
        },
    })
}

pub(super) fn check_state(id: &InstanceId, instance: &Instance) -> Result<(), Refusal> {
    let state = instance
        .state()
        .and_then(|state| state.name())
        .ok_or_else(|| unusable(API, format!("{id} has no state")))?;
    match state {
        InstanceStateName::Pending | InstanceStateName::Running => Ok(()),
        other => Err(Refusal::NotRunning {
            instance: id.to_string(),
            state: other.as_str().escape_debug().take(32).collect(),
        }),
    }
}

/// `KubernetesCluster` decides if it is present, otherwise `kubernetes.io/cluster/NAME=owned`.
pub(super) fn check_cluster(id: &InstanceId, instance: &Instance, ours: &ClusterName) -> Result<(), Refusal> {
    let mut owners: Vec<&str> = match tag(instance, CLUSTER_TAG) {
        Some(name) => vec![name],
        None => owning_clusters(instance).collect(),
    };
    // Sorted, because EC2 guarantees no order and equal refusals must have equal texts.
    owners.sort_unstable();
    match owners.as_slice() {
        [owner] if *owner == ours.as_str() => Ok(()),
        owners => Err(Refusal::ForeignProject {
            instance: id.to_string(),
            mark: Mark::Tag,
            theirs: owners
                .iter()
                .find(|owner| **owner != ours.as_str())
                .map(|owner| (*owner).to_owned()),
            ours: ours.clone(),
        }),
    }
}

fn owning_clusters(instance: &Instance) -> impl Iterator<Item = &str> {
    let owned = instance.tags().iter().filter(|tag| tag.value() == Some("owned"));
    owned.filter_map(|tag| tag.key()?.strip_prefix(CLUSTER_TAG_PREFIX))
}

fn group(id: &InstanceId, instance: &Instance) -> Result<InstanceGroupName, Refusal> {
    let tag = tag(instance, INSTANCE_GROUP_LABEL);
    tag.and_then(|name| name.parse().ok())
        .ok_or_else(|| Refusal::NotInGroup {
            instance: id.to_string(),
            mark: Mark::Tag,
            value: tag.map(str::to_owned),
        })
}

fn lifecycle(instance: &Instance) -> Lifecycle {
    match instance.instance_lifecycle() {
        Some(InstanceLifecycleType::Spot) => Lifecycle::Spot,
        Some(InstanceLifecycleType::Scheduled) => Lifecycle::Scheduled,
        // An absent lifecycle is on demand; the other values are reservations, which are not interrupted.
        _ => Lifecycle::OnDemand,
    }
}

/// The names that prove: the private DNS name of the instance, which is that of its primary interface, and its id.
///
/// The names of other interfaces prove nothing: kOps permits the workers of some clusters (Amazon VPC CNI) to attach
/// their interfaces to any instance, so a worker could lend its own name to a control plane.
fn names(id: &InstanceId, instance: &Instance) -> Vec<String> {
    let own = instance.private_dns_name().filter(|name| !name.is_empty());
    let names = own.map(str::to_ascii_lowercase).into_iter().chain([id.to_string()]);
    let names: BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

/// All private addresses, including secondary ones: addresses can only refute, so extra ones are harmless.
fn addresses(instance: &Instance) -> Vec<IpAddr> {
    let interfaces = instance.network_interfaces();
    let secondary = interfaces
        .iter()
        .flat_map(InstanceNetworkInterface::private_ip_addresses)
        .filter_map(|address| address.private_ip_address());
    let v6 = interfaces
        .iter()
        .flat_map(InstanceNetworkInterface::ipv6_addresses)
        .filter_map(|address| address.ipv6_address());
    let primary = interfaces.iter().filter_map(|interface| interface.private_ip_address());
    let own = [instance.private_ip_address(), instance.ipv6_address()];
    let all = own.into_iter().flatten().chain(primary).chain(secondary).chain(v6);
    let addresses: BTreeSet<IpAddr> = all.filter_map(|text| text.parse().ok()).collect();
    addresses.into_iter().collect()
}

fn tag_labels(instance: &Instance) -> Vec<(String, String)> {
    let labels = instance.tags().iter().filter_map(|tag| {
        let key = tag.key()?.strip_prefix(LABEL_TAG_PREFIX)?;
        Some((key.to_owned(), tag.value().unwrap_or_default().to_owned()))
    });
    let mut labels: Vec<_> = labels.collect();
    labels.sort_unstable();
    labels
}

pub(super) fn tag<'a>(instance: &'a Instance, key: &str) -> Option<&'a str> {
    let tag = instance.tags().iter().find(|tag| tag.key() == Some(key))?;
    Some(tag.value().unwrap_or_default())
}
