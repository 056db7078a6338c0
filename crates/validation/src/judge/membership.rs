//! The group of each instance, and its Node.
//!
//! A Node belongs to the instance that its providerID names: the same cloud, project, zone and id. The providerID is only the
//! kubelet's claim, so it counts only with [proof](super::finder). If the cloud provides the name of the instance's Node, only the
//! Node with that name belongs to it, because the kubelet's certificate binds the name.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tidewaiter_api::InstanceGroupName;
use tidewaiter_kops::{GroupSummary, Role};

use super::finder::{Finder, Join};
use crate::objects::Node;
use crate::observation::{CloudGroup, Identities, Member, MemberStatus, Part};

/// The instances of a cluster.
pub(super) struct Membership<'a> {
    /// The groups in the cloud with an InstanceGroup, by the name of the InstanceGroup and their own.
    pub groups: Vec<Group<'a>>,
    /// The InstanceGroups without a group in the cloud, by name.
    pub missing: Vec<&'a GroupSummary>,
    /// Whether Nodes are known. If not, no machine has one.
    pub nodes_known: bool,
    /// Whether it is also known which of them are proven. If not, no machine has a Node that counts.
    pub identities_known: bool,
    /// The number of Nodes that claim to be some instance.
    claims: usize,
}

/// A group in the cloud.
pub(super) struct Group<'a> {
    pub summary: &'a GroupSummary,
    pub cloud: &'a CloudGroup,
    /// Sorted by id.
    pub machines: Vec<Machine<'a>>,
}

/// One instance in one group.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    pub member: &'a Member,
    pub join: Join<'a>,
    /// Whether the instance and its Node are judged in this group.
    pub judged: bool,
}

impl<'a> Machine<'a> {
    /// The Node whose claim to be this instance counts.
    pub(super) fn node(&self) -> Option<&'a Node> {
        match self.join {
            Join::Node(node, _) => Some(node),
            Join::Missing | Join::Unproven(..) => None,
        }
    }

    /// Detached instances are being replaced, and those of a warm pool have not been started as Nodes.
    fn in_service(&self) -> bool {
        self.member.status != MemberStatus::Detached && !self.member.warm_pool
    }

    pub(super) fn counts(&self) -> bool {
        self.member.status != MemberStatus::Detached
    }

    /// Whether an instance of `role` must have a Node.
    pub(super) fn must_join(&self, role: Role) -> bool {
        self.in_service() && role != Role::Bastion
    }
}

impl<'a> Membership<'a> {
    pub(super) fn new(
        summaries: &'a [GroupSummary],
        cloud: &'a [CloudGroup],
        nodes: Option<&'a [Arc<Node>]>,
        identities: &'a Identities,
    ) -> Self {
        let by_name: BTreeMap<_, _> = summaries.iter().map(|summary| (&summary.name, summary)).collect();
        let finder = Finder::new(nodes.unwrap_or_default(), identities);
        let mut groups: Vec<Group<'a>> = cloud
            .iter()
            .filter_map(|cloud| {
                let summary = *by_name.get(&cloud.instance_group)?;
                let mut machines: Vec<_> = cloud.members.iter().map(|member| machine(member, &finder)).collect();
                machines.sort_by_key(|machine| &machine.member.id);
                Some(Group {
                    summary,
                    cloud,
                    machines,
                })
            })
            .collect();
        groups.sort_by_key(|group| (&group.summary.name, &group.cloud.name));
        judge_each_once(&mut groups);
        let present: HashSet<_> = cloud.iter().map(|cloud| &cloud.instance_group).collect();
        let missing = by_name.into_values().filter(|summary| !present.contains(&summary.name));
        Self {
            groups,
            missing: missing.collect(),
            nodes_known: nodes.is_some(),
            identities_known: !matches!(identities, Identities::Installed(Part::Unknown(_))),
            claims: finder.len(),
        }
    }

    /// The judged instances with the group in which each is judged.
    pub(super) fn judged(&self) -> impl Iterator<Item = (&Group<'a>, Machine<'a>)> {
        self.groups
            .iter()
            .flat_map(|group| group.judged().map(move |machine| (group, machine)))
    }

    /// The group of each Node with an instance.
    pub(super) fn group_by_node(&self) -> HashMap<&'a str, &'a InstanceGroupName> {
        let nodes = self
            .judged()
            .filter_map(|(group, machine)| Some((machine.node()?.name(), &group.summary.name)));
        nodes.collect()
    }

    /// The Nodes with an instance and their groups, by the name of the Node.
    pub(super) fn nodes_by_name(&self) -> impl Iterator<Item = (&'a GroupSummary, &'a Node)> {
        let mut places = vec![None; self.claims];
        for (group, machine) in self.judged() {
            if let Join::Node(node, place) = machine.join {
                places[place] = Some((group.summary, node));
            }
        }
        places.into_iter().flatten()
    }
}

impl<'a> Group<'a> {
    pub(super) fn judged(&self) -> impl Iterator<Item = Machine<'a>> {
        self.machines.iter().copied().filter(|machine| machine.judged)
    }
}

fn machine<'a>(member: &'a Member, finder: &Finder<'a>) -> Machine<'a> {
    Machine {
        member,
        join: finder.node_of(member),
        judged: false,
    }
}

/// An instance that two groups claim is judged in the one in which it is in service, else (or if it is in service in
/// both) in the first.
fn judge_each_once(groups: &mut [Group<'_>]) {
    let mut judged = HashSet::new();
    for in_service in [true, false] {
        let machines = groups.iter_mut().flat_map(|group| &mut group.machines);
        for machine in machines.filter(|machine| machine.in_service() == in_service) {
            machine.judged = judged.insert(&machine.member.provider_id);
        }
    }
}
