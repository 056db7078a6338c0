//! The group of each instance, and its Node.
//!
//! A Node belongs to the instance that its providerID names: the same cloud, project, zone and id. One that the records mark
//! as forged belongs to none. The providerID is only the kubelet's claim. So if the cloud provides the name of the instance's
//! Node, only the Node with that name belongs to it, because the kubelet's certificate binds the name. If several Nodes remain,
//! the worst counts, so that no claim can hide that another Node is not ready.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use tidewaiter_api::{InstanceGroupName, ProviderId};
use tidewaiter_kops::{GroupSummary, Role};

use crate::objects::Node;
use crate::observation::{CloudGroup, Member, MemberStatus};

/// The instances of a cluster.
pub(super) struct Membership<'a> {
    /// The groups in the cloud with an InstanceGroup, by the name of the InstanceGroup and their own.
    pub groups: Vec<Group<'a>>,
    /// The InstanceGroups without a group in the cloud, by name.
    pub missing: Vec<&'a GroupSummary>,
    /// Whether Nodes are known. If not, no machine has one.
    pub nodes_known: bool,
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
    pub node: Option<&'a Node>,
    /// Whether the instance and its Node are judged in this group.
    pub judged: bool,
}

impl Machine<'_> {
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
        forged: &BTreeSet<String>,
    ) -> Self {
        let by_name: BTreeMap<_, _> = summaries.iter().map(|summary| (&summary.name, summary)).collect();
        let finder = Finder::new(nodes.unwrap_or_default(), forged);
        let mut groups: Vec<Group<'a>> = cloud
            .iter()
            .filter_map(|cloud| {
                let summary = *by_name.get(&cloud.instance_group)?;
                let mut machines: Vec<_> = cloud.members.iter().map(|member| finder.machine(member)).collect();
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
            .filter_map(|(group, machine)| Some((machine.node?.name(), &group.summary.name)));
        nodes.collect()
    }
}

impl<'a> Group<'a> {
    pub(super) fn judged(&self) -> impl Iterator<Item = Machine<'a>> {
        self.machines.iter().copied().filter(|machine| machine.judged)
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

/// Finds the Node of an instance.
struct Finder<'a> {
    /// The Nodes that claim each instance, in order of precedence.
    claimants: HashMap<&'a ProviderId, Vec<&'a Node>>,
}

impl<'a> Finder<'a> {
    fn new(nodes: &'a [Arc<Node>], forged: &BTreeSet<String>) -> Self {
        let honest = nodes
            .iter()
            .map(Arc::as_ref)
            .filter(|node| !forged.contains(node.name()));
        let mut nodes: Vec<&Node> = honest.collect();
        // A control-plane Node must run the static pods, and no kubelet can set its label, so it takes precedence.
        nodes.sort_by_key(|node| (node.is_ready(), !node.is_control_plane(), node.name()));
        let mut claimants: HashMap<_, Vec<_>> = HashMap::new();
        for node in nodes {
            if let Some(provider_id) = &node.provider_id {
                claimants.entry(provider_id).or_default().push(node);
            }
        }
        Self { claimants }
    }

    fn machine(&self, member: &'a Member) -> Machine<'a> {
        let has_name = |node: &&Node| {
            member
                .node_name
                .as_ref()
                .is_none_or(|name| name.as_str() == node.name())
        };
        let mut claimants = self.claimants.get(&member.provider_id).into_iter().flatten().copied();
        Machine {
            member,
            node: claimants.find(has_name),
            judged: false,
        }
    }
}
