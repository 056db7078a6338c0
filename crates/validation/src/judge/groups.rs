//! The rules for groups, instances and Nodes, and their table rows.

use std::collections::BTreeSet;

use tidewaiter_kops::{GroupSummary, Role};

use super::membership::{Group, Machine, Membership};
use super::{Found, Place, count};
use crate::objects::Node;
use crate::observation::MemberStatus;
use crate::verdict::{Failure, FailureKind, GroupCounts, GroupRow, NodeRow};

/// The role of a Node in kOps' output; Nodes of other roles are not judged.
fn judged_role(role: Role) -> Option<&'static str> {
    match role {
        Role::ControlPlane => Some("control-plane"),
        Role::ApiServer => Some("apiserver"),
        Role::Node => Some("node"),
        Role::Bastion | Role::Etcd | Role::Scheduler | Role::KubeControllerManager => None,
    }
}

/// The failures of groups, instances and Nodes.
pub(super) fn failures<'a>(membership: &Membership<'a>) -> Vec<Found<'a>> {
    let mut found = Vec::new();
    for group in &membership.groups {
        found.extend(too_small(group));
        if membership.nodes_known {
            found.extend(group.judged().filter_map(|machine| machine_failure(group, machine)));
        }
    }
    found.extend(membership.missing.iter().map(|group| {
        let message = format!(
            "InstanceGroup {:?} is missing from the cloud provider",
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

/// The workers that did not join or are not ready, without detached ones.
pub(super) fn unready_workers<'a>(membership: &Membership<'a>) -> BTreeSet<Place<'a>> {
    let workers = membership
        .judged()
        .filter(|(group, machine)| group.summary.role == Role::Node && machine.counts());
    let failed = workers.filter_map(|(group, machine)| machine_failure(group, machine));
    failed.map(|found| found.place).collect()
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
    let Some(node) = machine.node else {
        let id = machine.member.id.as_str();
        let message = || format!("machine {id:?} has not yet joined cluster");
        return machine
            .must_join(group.summary.role)
            .then(|| found_in(group.summary, FailureKind::Machine, id, message(), Place::Machine(id)));
    };
    let role = judged_role(group.summary.role)?;
    let name = node.name();
    let message = || format!("node {name:?} of role {role:?} is not ready");
    (!node.is_ready()).then(|| found_in(group.summary, FailureKind::Node, name, message(), Place::Node(name)))
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
    let row = |group: &Group<'_>, node: &Node| {
        Some(NodeRow {
            name: node.name().to_owned(),
            zone: node.zone().to_owned(),
            role: judged_role(group.summary.role)?,
            hostname: node.hostname().to_owned(),
            status: node.ready_status(),
            ready: node.is_ready(),
            instance_group: group.summary.name.clone(),
        })
    };
    let judged = membership.judged();
    let mut rows: Vec<_> = judged
        .filter_map(|(group, machine)| row(group, machine.node?))
        .collect();
    rows.sort_by(|one, other| one.name.cmp(&other.name));
    rows
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
        ready: membership.nodes_known.then_some(0),
        needs_update: Some(0),
        ..GroupCounts::default()
    };
    of_group.fold(none, |sum, group| {
        let ready = counting(group).filter(|machine| machine.node.is_some_and(Node::is_ready));
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
