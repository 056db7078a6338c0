//! The rules for groups, instances and Nodes, and their table rows.

use std::collections::HashSet;
use std::sync::Arc;

use tidewaiter_kops::{GroupSummary, Role};

use super::finder::{Join, Joined, count};
use super::findings::{Findings, Place};
use super::membership::{Group, Machine, Membership};
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

/// Adds the failures of groups, instances and Nodes. `location` is where the cloud was asked for groups.
pub(super) fn failures<'a>(membership: &Membership<'a>, location: Option<&str>, findings: &mut Findings<'a>) {
    let location = location.map_or_else(String::new, |location| format!(" ({location})"));
    for group in &membership.groups {
        too_small(group, findings);
        if membership.nodes_known {
            for machine in group.judged() {
                machine_failure(group, machine, findings);
            }
        }
    }
    for group in &membership.missing {
        let name = group.name.as_str();
        let message = || format!("InstanceGroup {name:?} is missing from the cloud provider{location}");
        findings.add(FailureKind::InstanceGroup, Place::Cluster, || {
            failure_in(group, FailureKind::InstanceGroup, name, message())
        });
    }
}

/// The workers that did not join or are not ready, without detached ones; none if there are more than `allowed`, so
/// that all their failures are named.
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
    let remedy = "wait a minute; then see kubectl describe nodeidentity NODE, and the log of the controller that holds the Lease if there is none";
    Some(Unknown::new(
        PartName::NodeIdentities,
        &format!("{}; {remedy}", named.join("; ")),
    ))
}

fn too_small(group: &Group<'_>, findings: &mut Findings<'_>) {
    let (current, target) = (current(group), group.sizes.target);
    let name = group.summary.name.as_str();
    let message = || format!("InstanceGroup {name:?} did not have enough nodes {current} vs {target}");
    if current < target {
        findings.add(FailureKind::InstanceGroup, Place::Cluster, || {
            failure_in(group.summary, FailureKind::InstanceGroup, name, message())
        });
    }
}

/// Adds the failure of an instance or its Node.
fn machine_failure<'a>(group: &Group<'a>, machine: Machine<'a>, findings: &mut Findings<'a>) {
    let place = place_of_failure(group, machine);
    match (place, judged_role(group.summary.role)) {
        (Some(Place::Machine(id)), _) => findings.add(FailureKind::Machine, Place::Machine(id), || {
            let message = format!("machine {id:?} has not yet joined cluster");
            failure_in(group.summary, FailureKind::Machine, id, message)
        }),
        (Some(Place::Node(name)), Some(role)) => findings.add(FailureKind::Node, Place::Node(name), || {
            let message = format!("node {name:?} of role {role:?} is not ready");
            failure_in(group.summary, FailureKind::Node, name, message)
        }),
        (None | Some(Place::Cluster | Place::Node(_)), _) => {}
    }
}

/// Returns the failed object: the instance, or its Node. Whether an instance whose Node is not proven has joined is
/// unknown.
fn place_of_failure<'a>(group: &Group<'a>, machine: Machine<'a>) -> Option<Place<'a>> {
    let role = group.summary.role;
    match machine.join {
        Join::Missing => machine
            .must_join(role)
            .then_some(Place::Machine(machine.member.id.as_str())),
        Join::Node(Joined { node, state, .. }) => {
            (judged_role(role).is_some() && !state.ready).then(|| Place::Node(node.name()))
        }
        Join::Unproven(..) => None,
    }
}

pub(super) fn failure_in(group: &GroupSummary, kind: FailureKind, name: &str, message: String) -> Failure {
    Failure {
        kind,
        name: name.to_owned(),
        message,
        instance_group: Some(group.name.clone()),
    }
}

/// The numbers of Nodes that are ready and that are not, of all instances whose role is judged.
pub(super) fn count_nodes(membership: &Membership<'_>) -> (u32, u32) {
    let mut counts = (0, 0);
    for (_, node) in membership
        .judged_nodes()
        .filter(|(group, _)| judged_role(group.role).is_some())
    {
        let count = if node.state.ready { &mut counts.0 } else { &mut counts.1 };
        *count += 1;
    }
    counts
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
    membership.by_place().into_iter().flatten().filter_map(row).collect()
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
    let groups = membership.groups_of(&summary.name);
    // As in kOps, a group of Karpenter has the target 0, also without an instance.
    let size = (summary.karpenter || !groups.is_empty()).then_some(0);
    let none = GroupCounts {
        current: 0,
        ready: (membership.nodes_known && membership.identities_known).then_some(0),
        needs_update: Some(0),
        target: size,
        min: size,
        max: size,
    };
    let add = |sum: Option<u32>, size: u32| sum.map(|sum| sum.saturating_add(size));
    groups.iter().fold(none, |sum, group| {
        let ready = counting(group).filter(|machine| machine.node().is_some_and(|node| node.state.ready));
        let of_status = |status| count(counting(group).filter(|machine| machine.member.status == status));
        let outdated = (of_status(MemberStatus::Unresolved) == 0).then(|| of_status(MemberStatus::NeedsUpdate));
        GroupCounts {
            current: sum.current + current(group),
            ready: sum.ready.map(|sum| sum + count(ready)),
            needs_update: sum.needs_update.zip(outdated).map(|(sum, outdated)| sum + outdated),
            target: add(sum.target, group.sizes.target),
            min: add(sum.min, group.sizes.min),
            max: add(sum.max, group.sizes.max),
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
