//! The rules for groups, instances and Nodes, and their table rows.

use std::collections::HashSet;
use std::sync::Arc;

use tidewaiter_kops::{GroupSummary, Role};

use super::finder::Join;
use super::membership::{Group, Machine, Membership};
use super::{Found, Place, count};
use crate::objects::Node;
use crate::observation::MemberStatus;
use crate::verdict::{Failure, FailureKind, GroupCounts, GroupRow, NodeRow, PartName, Unknown};

/// Instances whose Node is not proven that are named; the others are counted.
const NAMED: usize = 3;

/// The role of a Node in kOps' output; Nodes of other roles are not judged.
fn judged_role(role: Role) -> Option<&'static str> {
    match role {
        Role::ControlPlane => Some("control-plane"),
        Role::ApiServer => Some("apiserver"),
        Role::Node => Some("node"),
        Role::Bastion | Role::Etcd | Role::Scheduler | Role::KubeControllerManager => None,
    }
}

/// The failures of groups, instances and Nodes. `location` is where the cloud was asked for groups.
pub(super) fn failures<'a>(membership: &Membership<'a>, location: Option<&str>) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    let location = location.map_or_else(String::new, |location| format!(" ({location})"));
    for group in &membership.groups {
        found.extend(too_small(group));
        if membership.nodes_known {
            found.extend(group.judged().filter_map(|machine| machine_failure(group, machine)));
        }
    }
    found.extend(membership.missing.iter().map(|group| {
        let message = format!(
            "InstanceGroup {:?} is missing from the cloud provider{location}",
            group.name.as_str()
        );
        found_in(
            group,
            FailureKind::InstanceGroup,
            group.name.as_str(),
            message,
            Place::Cluster,
        )
    }));
    found
}

/// The workers that did not join or are not ready, without detached ones; none if there are more than `allowed`, so that all
/// their failures are named.
pub(super) fn tolerable_workers<'a>(membership: &Membership<'a>, allowed: u32) -> HashSet<Place<'a>> {
    let mut unready = HashSet::new();
    if allowed == 0 {
        return unready;
    }
    let workers = membership
        .judged()
        .filter(|(group, machine)| group.summary.role == Role::Node && machine.counts());
    for place in workers.filter_map(|(group, machine)| place_of_failure(group, machine)) {
        unready.insert(place);
        if count(&unready) > allowed {
            return HashSet::new();
        }
    }
    unready
}

/// The instances that would be judged, but whose Node is not proven.
pub(super) fn unproven(membership: &Membership<'_>) -> Option<Unknown> {
    let mut named = Vec::new();
    let mut more = 0_usize;
    for (group, machine) in membership.judged() {
        let Join::Unproven(node, doubt) = machine.join else {
            continue;
        };
        let GroupSummary { role, name, .. } = group.summary;
        if judged_role(*role).is_none() && !machine.must_join(*role) {
            continue;
        }
        if named.len() == NAMED {
            more += 1;
            continue;
        }
        let (node, id, name) = (node.name(), machine.member.id.as_str(), name.as_str());
        named.push(format!(
            "node {node:?} is not proven to be instance {id:?} of InstanceGroup {name:?}: {doubt}"
        ));
    }
    if named.is_empty() {
        return None;
    }
    if more > 0 {
        named.push(format!("and {more} more"));
    }
    let remedy =
        "wait a minute; then see kubectl describe nodeidentity NODE, and the log of the controller if there is none";
    Some(Unknown::new(
        PartName::NodeIdentities,
        &format!("{}; {remedy}", named.join("; ")),
    ))
}

fn too_small<'a>(group: &Group<'a>) -> Option<Found<'a>> {
    let (current, target) = (current(group), group.cloud.target_size);
    let name = group.summary.name.as_str();
    let message = || format!("InstanceGroup {name:?} did not have enough nodes {current} vs {target}");
    (current < target).then(|| {
        found_in(
            group.summary,
            FailureKind::InstanceGroup,
            name,
            message(),
            Place::Cluster,
        )
    })
}

/// The failure of an instance or its Node.
fn machine_failure<'a>(group: &Group<'a>, machine: Machine<'a>) -> Option<Found<'a>> {
    let place = place_of_failure(group, machine)?;
    let (kind, name, message) = match place {
        Place::Cluster => return None,
        Place::Machine(id) => (
            FailureKind::Machine,
            id,
            format!("machine {id:?} has not yet joined cluster"),
        ),
        Place::Node(name) => {
            let role = judged_role(group.summary.role)?;
            let message = format!("node {name:?} of role {role:?} is not ready");
            (FailureKind::Node, name, message)
        }
    };
    Some(found_in(group.summary, kind, name, message, place))
}

/// What has failed: the instance, or its Node. Whether an instance whose Node is not proven has joined is unknown.
fn place_of_failure<'a>(group: &Group<'a>, machine: Machine<'a>) -> Option<Place<'a>> {
    let role = group.summary.role;
    match machine.join {
        Join::Missing => machine
            .must_join(role)
            .then_some(Place::Machine(machine.member.id.as_str())),
        Join::Node(node, _) => (judged_role(role).is_some() && !node.is_ready()).then(|| Place::Node(node.name())),
        Join::Unproven(..) => None,
    }
}

pub(super) fn found_in<'a>(
    group: &GroupSummary,
    kind: FailureKind,
    name: &str,
    message: String,
    place: Place<'a>,
) -> Found<'a> {
    let failure = Failure {
        kind,
        name: name.to_owned(),
        message,
        instance_group: Some(group.name.clone()),
    };
    Found { failure, place }
}

/// The Nodes of all instances whose role is judged, by name.
pub(super) fn node_rows(membership: &Membership<'_>) -> Vec<NodeRow> {
    let row = |(group, node): (&GroupSummary, &Node)| {
        Some(NodeRow {
            name: Arc::clone(&node.name),
            zone: Arc::clone(&node.zone),
            role: judged_role(group.role)?,
            hostname: Arc::clone(&node.hostname),
            status: node.ready_status(),
            ready: node.is_ready(),
            instance_group: group.name.clone(),
        })
    };
    membership.nodes_by_name().filter_map(row).collect()
}

/// The InstanceGroups, by name, with their groups in the cloud.
pub(super) fn group_rows(summaries: &[GroupSummary], membership: Option<&Membership<'_>>) -> Vec<GroupRow> {
    let mut rows: Vec<_> = summaries
        .iter()
        .map(|summary| GroupRow {
            group: summary.clone(),
            cloud: membership.map(|membership| group_counts(summary, membership)),
        })
        .collect();
    rows.sort_by(|one, other| one.group.name.cmp(&other.group.name));
    rows
}

fn group_counts(summary: &GroupSummary, membership: &Membership<'_>) -> GroupCounts {
    let of_group = membership
        .groups
        .iter()
        .filter(|group| group.summary.name == summary.name);
    let none = GroupCounts {
        ready: (membership.nodes_known && membership.identities_known).then_some(0),
        needs_update: Some(0),
        ..GroupCounts::default()
    };
    of_group.fold(none, |sum, group| {
        let ready = counting(group).filter(|machine| machine.node().is_some_and(Node::is_ready));
        let of_status = |status| count(counting(group).filter(|machine| machine.member.status == status));
        let outdated = (of_status(MemberStatus::Unresolved) == 0).then(|| of_status(MemberStatus::NeedsUpdate));
        GroupCounts {
            current: sum.current + current(group),
            ready: sum.ready.map(|sum| sum + count(ready)),
            needs_update: sum.needs_update.zip(outdated).map(|(sum, outdated)| sum + outdated),
            target: sum.target.saturating_add(group.cloud.target_size),
            min: sum.min.saturating_add(group.cloud.min_size),
            max: sum.max.saturating_add(group.cloud.max_size),
        }
    })
}

fn counting<'g, 'a>(group: &'g Group<'a>) -> impl Iterator<Item = &'g Machine<'a>> {
    group.machines.iter().filter(|machine| machine.counts())
}

/// The number of members that count towards the target.
fn current(group: &Group<'_>) -> u32 {
    count(counting(group))
}
