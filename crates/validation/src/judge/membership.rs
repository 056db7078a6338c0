//! The group of each instance, and its Node.
//!
//! A Node belongs to the instance that its providerID names: the same cloud, project, zone and id. The providerID is
//! only the kubelet's claim, so it counts only with [proof](super::finder). If the cloud provides the name of the
//! instance's Node, only the Node with that name belongs to it, because the kubelet's certificate binds the name.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use tidewaiter_api::InstanceGroupName;
use tidewaiter_kops::{GroupSummary, Role};

use super::finder::{Finder, Join, Joined};
use crate::claims::Claims;
use crate::instances::{Instances, Numbered};
use crate::objects::Node;
use crate::observation::{CloudGroup, Identities, Member, MemberStatus, Part, Sizes};

/// The instances of a cluster.
pub(super) struct Membership<'a> {
    /// The groups in the cloud with an InstanceGroup, by the name of the InstanceGroup and their own.
    pub groups: Vec<Group<'a>>,
    /// The InstanceGroups without a group in the cloud, by name.
    pub missing: Vec<&'a GroupSummary>,
    /// True if Nodes are known. If not, no machine has one.
    pub nodes_known: bool,
    /// True if it is also known which of them are proven. If not, no machine has a Node that counts.
    pub identities_known: bool,
    finder: Finder<'a>,
}

/// A group in the cloud.
pub(super) struct Group<'a> {
    pub summary: &'a GroupSummary,
    pub cloud: &'a CloudGroup,
    pub sizes: GroupSizes,
    /// Sorted by id.
    pub machines: Vec<Machine<'a>>,
}

/// The sizes that a group is judged by.
#[derive(Clone, Copy, Default)]
pub(super) struct GroupSizes {
    pub target: u32,
    pub min: u32,
    pub max: u32,
}

impl GroupSizes {
    /// As in kOps' `GetCloudGroups`: a group of Karpenter has no target, also while it has an Auto Scaling group from
    /// before. Instances in no group of the cloud are a group for no other InstanceGroup (None).
    fn of(summary: &GroupSummary, cloud: Sizes) -> Option<Self> {
        match cloud {
            Sizes::OfCloud { .. } | Sizes::Unmanaged if summary.karpenter => Some(Self::default()),
            Sizes::OfCloud { target, min, max } => Some(Self { target, min, max }),
            Sizes::Unmanaged => None,
            Sizes::OfInstanceGroup => {
                let (min, max) = (summary.min_size.unwrap_or(0), summary.max_size.unwrap_or(0));
                Some(Self { target: min, min, max })
            }
        }
    }
}

/// One instance in one group.
#[derive(Clone, Copy)]
pub(super) struct Machine<'a> {
    pub member: &'a Member,
    /// The number of the instance.
    number: u32,
    pub join: Join<'a>,
    /// True if the instance and its Node are judged in this group.
    pub judged: bool,
}

impl<'a> Machine<'a> {
    /// The Node whose claim to be this instance counts.
    pub(super) fn node(&self) -> Option<Joined<'a>> {
        match self.join {
            Join::Node(joined) => Some(joined),
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

    /// Returns true if an instance of `role` must have a Node.
    pub(super) fn must_join(&self, role: Role) -> bool {
        self.in_service() && role != Role::Bastion
    }
}

impl<'a> Membership<'a> {
    pub(super) fn new(
        summaries: &'a [GroupSummary],
        instances: &'a Arc<Instances>,
        claims: Option<&'a Claims>,
        identities: &Identities,
    ) -> Self {
        let by_name: BTreeMap<_, _> = summaries.iter().map(|summary| (&summary.name, summary)).collect();
        let finder = Finder::new(claims, instances, identities);
        let of_cluster = instances.groups().iter().filter_map(|numbered| {
            let summary = *by_name.get(&numbered.group.instance_group)?;
            let sizes = GroupSizes::of(summary, numbered.group.sizes)?;
            Some(Group::new(summary, sizes, numbered, &finder))
        });
        let mut groups: Vec<Group<'a>> = of_cluster.collect();
        groups.sort_by_key(|group| (&group.summary.name, &group.cloud.name));
        judge_each_once(&mut groups, instances.len());
        let present: HashSet<_> = groups.iter().map(|group| &group.summary.name).collect();
        let is_missing = |summary: &&GroupSummary| !summary.karpenter && !present.contains(&summary.name);
        let missing = by_name.into_values().filter(is_missing);
        Self {
            groups,
            missing: missing.collect(),
            nodes_known: claims.is_some(),
            identities_known: !matches!(identities, Identities::Installed(Part::Unknown(_))),
            finder,
        }
    }

    /// The groups of an InstanceGroup in the cloud.
    pub(super) fn groups_of(&self, name: &InstanceGroupName) -> &[Group<'a>] {
        let begin = self.groups.partition_point(|group| group.summary.name < *name);
        let end = self.groups.partition_point(|group| group.summary.name <= *name);
        &self.groups[begin..end]
    }

    /// The judged instances with the group in which each is judged.
    pub(super) fn judged(&self) -> impl Iterator<Item = (&Group<'a>, Machine<'a>)> {
        self.groups
            .iter()
            .flat_map(|group| group.judged().map(move |machine| (group, machine)))
    }

    /// The judged Nodes with an instance.
    pub(super) fn judged_nodes(&self) -> impl Iterator<Item = (&'a GroupSummary, Joined<'a>)> {
        self.judged()
            .filter_map(|(group, machine)| Some((group.summary, machine.node()?)))
    }

    /// The judged Nodes with an instance by their places in the order of the names of all Nodes; None for the others.
    pub(super) fn by_place(&self) -> Vec<Option<(&'a GroupSummary, &'a Node)>> {
        let mut places = vec![None; self.finder.len()];
        for (group, Joined { node, place, .. }) in self.judged_nodes() {
            places[place as usize] = Some((group, node));
        }
        places
    }

    /// The place of the Node of this name in [`by_place`](Self::by_place).
    pub(super) fn place(&self, node: &str) -> Option<usize> {
        self.finder.place(node)
    }
}

impl<'a> Group<'a> {
    fn new(summary: &'a GroupSummary, sizes: GroupSizes, numbered: &'a Numbered, finder: &Finder<'a>) -> Self {
        let machines = numbered.members().map(|(member, number)| Machine {
            member,
            number,
            join: finder.node_of(member, number),
            judged: false,
        });
        Self {
            summary,
            cloud: &numbered.group,
            sizes,
            machines: machines.collect(),
        }
    }

    pub(super) fn judged(&self) -> impl Iterator<Item = Machine<'a>> {
        self.machines.iter().copied().filter(|machine| machine.judged)
    }
}

/// An instance that two groups claim is judged in the one in which it is in service, else (or if it is in service in
/// both) in the first.
fn judge_each_once(groups: &mut [Group<'_>], instances: usize) {
    let mut judged = vec![false; instances];
    for in_service in [true, false] {
        let machines = groups.iter_mut().flat_map(|group| &mut group.machines);
        for machine in machines.filter(|machine| machine.in_service() == in_service) {
            machine.judged = !std::mem::replace(&mut judged[machine.number as usize], true);
        }
    }
}
