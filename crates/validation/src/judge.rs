//! From an observation to a verdict. Pure, so that the rules of `kops validate cluster` can be read and tested as a
//! table.
//!
//! Invariants:
//! - The order of observations does not matter.
//! - A rule is applied only if everything that it needs is known; each unknown part is named once.
//! - An instance and its Node are judged once, no matter how many groups claim the instance.

mod finder;
mod findings;
mod groups;
mod membership;
mod pods;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tidewaiter_kops::GroupSummary;

use crate::claims::Claims;
use crate::instances::Instances;
use crate::objects::Pod;
use crate::observation::{Dns, Identities, Observation, Part};
use crate::verdict::{Counts, Failure, FailureKind, PartName, Unknown, Verdict};
use findings::{Findings, Place};
use membership::Membership;

/// The number of failures that are listed where the others are only counted.
pub const LISTED: usize = 5;

/// The placeholder of kOps: a documentation address (RFC 5737), which is never assigned.
const PLACEHOLDER: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 123));
/// `fd00:dead:add::`, the same for IPv6.
const PLACEHOLDER_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0xdead, 0x0add, 0, 0, 0, 0, 0));

/// The options of a validation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The maximum number of workers that may be not ready or not joined. They cause no failure, and neither do their
    /// pods.
    pub max_unready_nodes: u32,
    /// True if the Nodes, and all failures but the first [`LISTED`], are only counted and not listed one by one: then a
    /// verdict takes no memory for each Node.
    pub counts_only: bool,
}

/// Judges an observation.
#[must_use]
pub fn judge(seen: &Observation, options: &Options) -> Verdict {
    let (known, mut unknown) = Known::of(seen);
    let membership = known.membership();
    // Rules that also need Nodes, and rules that need to know whose Nodes they are.
    let listed = membership.as_ref().filter(|membership| membership.nodes_known);
    let joined = listed.filter(|membership| membership.identities_known);
    let unproven = joined.and_then(groups::unproven);

    let tolerable = listed.map(|listed| groups::tolerable_workers(listed, options.max_unready_nodes));
    let limit = if options.counts_only { LISTED } else { usize::MAX };
    let mut findings = Findings::new(tolerable.unwrap_or_default(), limit);
    if let Some(dns) = known.dns {
        placeholder(dns, &mut findings);
    }
    if let Some(membership) = &membership {
        groups::failures(membership, seen.cloud_location.as_deref(), &mut findings);
    }
    let mut counts = Counts::default();
    if let Some(joined) = joined {
        let (ready, not_ready) = groups::count_nodes(joined);
        // Before the first proof, nothing is known of any Node.
        if unproven.is_none() || ready + not_ready > 0 {
            counts.nodes_ready = Some(ready);
            counts.nodes_not_ready = Some(not_ready);
        }
    }
    unknown.extend(unproven);
    if let Some(pods) = known.pods {
        let system = pods::failures(pods, membership.as_ref(), &mut findings);
        counts.pods_not_ready = Some(system.not_ready);
        counts.pods_pending = Some(system.pending);
        counts.pods_unknown = Some(system.unknown);
        counts.pods_missing = joined.map(|joined| pods::missing(pods, joined, &mut findings));
    }
    let counted = counts.nodes_ready.max(counts.nodes_not_ready) > Some(0);
    let listed = joined.filter(|_| !options.counts_only);
    Verdict {
        cluster: seen.cluster.clone(),
        failures: findings.failures,
        unlisted: findings.unlisted,
        tolerated: findings.tolerated,
        unknown,
        groups: groups::group_rows(known.groups.unwrap_or_default(), membership.as_ref()),
        nodes: listed.map(groups::node_rows).unwrap_or_default(),
        counts,
        trusts_claims: seen.identities == Identities::NotInstalled && counted,
    }
}

/// The known parts of an observation.
struct Known<'a> {
    groups: Option<&'a [GroupSummary]>,
    cloud: Option<&'a Arc<Instances>>,
    nodes: Option<&'a Claims>,
    identities: &'a Identities,
    pods: Option<&'a [Arc<Pod>]>,
    dns: Option<&'a Dns>,
}

impl<'a> Known<'a> {
    /// The known parts, and the reasons for the unknown ones.
    fn of(seen: &'a Observation) -> (Self, Vec<Unknown>) {
        fn known<'a, T>(part: &'a Part<T>, name: PartName, unknown: &mut Vec<Unknown>) -> Option<&'a T> {
            match part {
                Part::Known(value) => Some(value),
                Part::Unknown(reason) => {
                    unknown.push(Unknown::new(name, reason));
                    None
                }
            }
        }
        let mut unknown = Vec::new();
        let mut groups = known(&seen.groups, PartName::InstanceGroups, &mut unknown);
        if groups.is_some_and(Vec::is_empty) {
            unknown.push(Unknown::new(
                PartName::InstanceGroups,
                "the state store has no InstanceGroup",
            ));
            groups = None;
        }
        let cloud = known(&seen.cloud, PartName::Cloud, &mut unknown);
        let nodes = known(&seen.nodes, PartName::Nodes, &mut unknown);
        if let Identities::Installed(records) = &seen.identities {
            known(records, PartName::NodeIdentities, &mut unknown);
        }
        let known = Self {
            groups: groups.map(Vec::as_slice),
            cloud,
            nodes,
            identities: &seen.identities,
            pods: known(&seen.pods, PartName::Pods, &mut unknown).map(Vec::as_slice),
            dns: known(&seen.dns, PartName::Dns, &mut unknown),
        };
        (known, unknown)
    }

    fn membership(&self) -> Option<Membership<'a>> {
        Some(Membership::new(self.groups?, self.cloud?, self.nodes, self.identities))
    }
}

/// Finds the placeholder address that kOps creates before a control plane runs, if the API's DNS name still has it.
fn placeholder(dns: &Dns, findings: &mut Findings<'_>) {
    let Dns::Addresses(addresses) = dns else { return };
    let placeholder = [PLACEHOLDER, PLACEHOLDER_V6]
        .into_iter()
        .find(|placeholder| addresses.iter().any(|address| address.to_canonical() == *placeholder));
    let Some(placeholder) = placeholder else { return };
    findings.add(FailureKind::Dns, Place::Cluster, || Failure {
        kind: FailureKind::Dns,
        name: "apiserver".to_owned(),
        message: format!(
            "The API DNS IP address is the placeholder address that kops creates: {placeholder}. It changes once a \
             control-plane node runs and dns-controller or external-dns has updated it"
        ),
        instance_group: None,
    });
}
