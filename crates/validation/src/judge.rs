//! From an observation to a verdict. Pure, so that the rules of `kops validate cluster` can be read and tested as a
//! table.
//!
//! Invariants:
//! - The order of observations does not matter.
//! - A rule is applied only if everything that it needs is known; each unknown part is named once.
//! - An instance and its Node are judged once, no matter how many groups claim the instance.

mod dns;
mod finder;
mod groups;
mod membership;
mod pods;

use std::collections::HashSet;
use std::sync::Arc;

use tidewaiter_kops::GroupSummary;

use crate::objects::{Node, Pod};
use crate::observation::{CloudGroup, Dns, Identities, Observation, Part};
use crate::verdict::{Counts, Failure, PartName, Unknown, Verdict};
use membership::Membership;

/// The options of a validation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// The maximum number of workers that may be not ready or not joined. They cause no failure, and neither do their
    /// pods.
    pub max_unready_nodes: u32,
}

/// A failure and its location.
struct Found<'a> {
    failure: Failure,
    place: Place<'a>,
}

/// The subject of a failure, for [`tolerate`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place<'a> {
    /// The cluster, or a group of it.
    Cluster,
    /// An instance without a Node, by its id.
    Machine(&'a str),
    /// A Node or a pod on it, by the Node's name.
    Node(&'a str),
}

/// Judges an observation.
#[must_use]
pub fn judge(seen: &Observation, options: &Options) -> Verdict {
    let (known, mut unknown) = Known::of(seen);
    let membership = known.membership();
    // Rules that also need Nodes, and rules that need to know whose Nodes they are.
    let listed = membership.as_ref().filter(|membership| membership.nodes_known);
    let joined = listed.filter(|membership| membership.identities_known);
    unknown.extend(joined.and_then(groups::unproven));

    let mut found: Vec<Found<'_>> = known.dns.and_then(dns::placeholder).into_iter().collect();
    let location = seen.cloud_location.as_deref();
    found.extend(
        membership
            .iter()
            .flat_map(|membership| groups::failures(membership, location)),
    );
    let mut counts = Counts::default();
    let nodes = joined.map(groups::node_rows);
    if let Some(nodes) = &nodes {
        let ready = count(nodes.iter().filter(|node| node.ready));
        counts.nodes_ready = Some(ready);
        counts.nodes_not_ready = Some(count(nodes) - ready);
    }
    if let Some(pods) = known.pods {
        let system = pods::failures(pods, membership.as_ref());
        counts.pods_not_ready = Some(system.not_ready);
        counts.pods_pending = Some(system.pending);
        counts.pods_unknown = Some(system.unknown);
        found.extend(system.found);
        let missing = joined.map(|joined| pods::missing(pods, joined));
        counts.pods_missing = missing.as_ref().map(count);
        found.extend(missing.unwrap_or_default());
    }
    let tolerable = listed.map(|listed| groups::tolerable_workers(listed, options.max_unready_nodes));
    let (failures, tolerated) = tolerate(found, &tolerable.unwrap_or_default());
    let nodes = nodes.unwrap_or_default();
    let trusts_claims = seen.identities == Identities::NotInstalled && !nodes.is_empty();
    Verdict {
        cluster: seen.cluster.clone(),
        failures,
        tolerated,
        unknown,
        groups: groups::group_rows(known.groups.unwrap_or_default(), membership.as_ref()),
        nodes,
        counts,
        trusts_claims,
    }
}

/// The known parts of an observation.
struct Known<'a> {
    groups: Option<&'a [GroupSummary]>,
    cloud: Option<&'a [CloudGroup]>,
    nodes: Option<&'a [Arc<Node>]>,
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
            cloud: cloud.map(|groups| &**groups),
            nodes: nodes.map(Vec::as_slice),
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

/// Splits failures into those that count and those that are tolerated: all failures of these workers.
fn tolerate(found: Vec<Found<'_>>, tolerable: &HashSet<Place<'_>>) -> (Vec<Failure>, Vec<Failure>) {
    let (mut failures, mut tolerated) = (Vec::with_capacity(found.len()), Vec::new());
    for Found { failure, place } in found {
        let list = if tolerable.contains(&place) {
            &mut tolerated
        } else {
            &mut failures
        };
        list.push(failure);
    }
    (failures, tolerated)
}

/// The number of items, which fits for any cluster.
fn count(things: impl IntoIterator) -> u32 {
    u32::try_from(things.into_iter().count()).unwrap_or(u32::MAX)
}
