//! One instance of EC2: its id in a providerID, and its identity in a response of `DescribeInstances`. Pure.
//!
//! An [`InstanceId`] exists only if its text is well-formed, so nothing else is ever sent. An instance without a field
//! that EC2 always sets is refused as unusable, never guessed.

use std::collections::{BTreeSet, HashSet};
use std::fmt;
use std::net::IpAddr;

use aws_sdk_ec2::types::{Instance, InstanceLifecycleType, InstanceNetworkInterface, InstanceStateName};
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_api::{ClusterName, InstanceGroupName, Lifecycle, ProviderId};

use super::call::API;
use crate::failure::Failure;
use crate::identifier::Identity;
use crate::refusal::{Mark, Refusal};

/// The tag that kOps sets on every instance of a cluster; the value is the cluster's name.
pub(super) const CLUSTER_TAG: &str = "KubernetesCluster";

/// The prefix of the newer tag's key, before the cluster's name; the value `owned` means that the instance belongs to
/// the cluster.
const CLUSTER_TAG_PREFIX: &str = "kubernetes.io/cluster/";

/// The prefix of a tag's key before a label's key: cluster-autoscaler's format for the labels of a future node. kOps
/// writes all labels of a group this way, and its newer controller reads them from here.
const LABEL_TAG_PREFIX: &str = "k8s.io/cluster-autoscaler/node-template/label/";

const RULE: &str = "does not have the form aws:///ZONE/i-0123456789abcdef0";

/// `i-` and 8 (before 2018) or 17 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct InstanceId(Box<str>);

/// The instance and the zone in a providerID of EC2.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) id: InstanceId,
    pub(super) zone: Box<str>,
}

impl Target {
    /// Parses `aws:///ZONE/ID`.
    ///
    /// # Errors
    /// [`Refusal::InvalidProviderId`] for anything else.
    pub(super) fn read(provider_id: &ProviderId) -> Result<Self, Refusal> {
        Self::parse(provider_id).ok_or_else(|| Refusal::InvalidProviderId {
            provider_id: provider_id.clone(),
            rule: RULE,
        })
    }

    fn parse(provider_id: &ProviderId) -> Option<Self> {
        if provider_id.scheme() != "aws" {
            return None;
        }
        let (zone, id) = provider_id.rest().strip_prefix('/')?.split_once('/')?;
        let zone_chars = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let zone_ok = (1..=64).contains(&zone.len()) && zone.bytes().all(zone_chars);
        zone_ok.then_some(Self {
            id: InstanceId::parse(id)?,
            zone: zone.into(),
        })
    }
}

impl InstanceId {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("i-")?;
        let ok =
            matches!(digits.len(), 8 | 17) && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        ok.then(|| Self(text.into()))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// The providerID of its Node; `None` if `zone` is not the name of a zone.
    pub(super) fn provider_id(&self, zone: &str) -> Option<ProviderId> {
        let provider_id: ProviderId = format!("aws:///{zone}/{self}").parse().ok()?;
        Target::parse(&provider_id).map(|_| provider_id)
    }
}

/// The words of an error message, so that an id does not match a longer one with the same prefix.
pub(super) fn named_in(message: &str) -> HashSet<&str> {
    message
        .split(|c: char| c != '-' && !c.is_ascii_alphanumeric())
        .collect()
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

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
        .ok_or_else(|| Failure::unusable(API, format!("{id} has no zone")).refusal())?;
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

fn check_state(id: &InstanceId, instance: &Instance) -> Result<(), Refusal> {
    let state = instance
        .state()
        .and_then(|state| state.name())
        .ok_or_else(|| Failure::unusable(API, format!("{id} has no state")).refusal())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Option<Target> {
        Target::parse(&text.parse().unwrap())
    }

    #[test]
    fn reads_both_lengths() {
        for id in ["i-0123456789abcdef0", "i-12345678"] {
            let target = parse(&format!("aws:///us-west-2-lax-1a/{id}")).unwrap();
            assert_eq!((target.id.as_str(), &*target.zone), (id, "us-west-2-lax-1a"));
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "aws:///us-east-1a/",
            "aws:///us-east-1a/i-",
            "aws:///us-east-1a/i-0123456789abcdef",
            "aws:///us-east-1a/i-0123456789abcdef00",
            "aws:///us-east-1a/i-0123456789ABCDEF0",
            "aws:///us-east-1a/i-0123456789abcdeg0",
            "aws:///us-east-1a/i-0123456789abcdef0/",
            "aws:///us-east-1a/i-0123456789abcdef0,i-12345678",
            "aws:///us-east-1a/x/i-0123456789abcdef0",
            "aws:////i-0123456789abcdef0",
            "aws:///i-0123456789abcdef0",
            "aws://us-east-1a/i-0123456789abcdef0",
            "aws:///us-east-1a/*",
            "aws:///US-EAST-1A/i-0123456789abcdef0",
            "aws:///us-east-1a%2f/i-0123456789abcdef0",
            "gce:///us-east-1a/i-0123456789abcdef0",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn the_provider_id_of_an_instance_is_one_that_is_read() {
        let id = InstanceId::parse("i-0123456789abcdef0").unwrap();
        let provider_id = |zone: &str| id.provider_id(zone).map(|it| it.to_string());
        assert_eq!(
            provider_id("us-east-1a").as_deref(),
            Some("aws:///us-east-1a/i-0123456789abcdef0")
        );
        for zone in [
            "",
            "us-east-1a/x",
            "US-EAST-1A",
            "us east",
            "us-east-1a\n",
            &"a".repeat(600),
        ] {
            assert_eq!(provider_id(zone), None, "{zone}");
        }
    }

    #[test]
    fn ids_are_found_in_what_ec2_says() {
        let named = |message: &str| named_in(message).contains("i-12345678");
        assert!(named("The instance ID 'i-12345678' does not exist"));
        assert!(named("The instance IDs 'i-0123456789abcdef0, i-12345678' do not exist"));
        assert!(named("Invalid id: \"i-12345678\""));
        assert!(!named("The instance ID 'i-123456789abcdef01' does not exist"));
        assert!(!named("The instance IDs do not exist"));
    }
}
