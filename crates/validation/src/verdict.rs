//! The verdict: what is wrong, what could not be known, and the numbers behind it.
//!
//! It says the same for the same observation: every list has its order. A number that could not be known is absent, never zero.

use std::fmt;

use tidewaiter_api::{ClusterName, ConditionStatus, InstanceGroupName};
use tidewaiter_kops::GroupSummary;

/// What is to be said of a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Which cluster.
    pub cluster: ClusterName,
    /// What is wrong: DNS; then by group its size and its machines, the groups that are missing, the pods, the control plane's
    /// own pods.
    pub failures: Vec<Failure>,
    /// What is wrong, but tolerated because no more workers than allowed are not ready; in the order of `failures`.
    pub tolerated: Vec<Failure>,
    /// What could not be known, so that the rules which need it were not applied.
    pub unknown: Vec<Unknown>,
    /// The InstanceGroups, by name.
    pub groups: Vec<GroupRow>,
    /// The Nodes of the cluster's instances whose role is judged, by name. A Node without an instance is not among them.
    pub nodes: Vec<NodeRow>,
    /// How many there are of what, tolerated or not.
    pub counts: Counts,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What kind of thing.
    pub kind: FailureKind,
    /// Which one: the name of the group or Node, the id of the instance, `namespace/name` of a pod, or `apiserver`.
    pub name: String,
    /// What is wrong with it.
    pub message: String,
    /// The InstanceGroup that it is a matter of. A pod that the whole cluster needs is of none.
    pub instance_group: Option<InstanceGroupName>,
}

/// What kind of thing is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// The name of the API.
    Dns,
    /// A group, missing or too small.
    InstanceGroup,
    /// An instance that is no Node.
    Machine,
    /// A Node.
    Node,
    /// A pod of the system.
    Pod,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Dns, Self::InstanceGroup, Self::Machine, Self::Node, Self::Pod];

    /// As kOps writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::InstanceGroup => "InstanceGroup",
            Self::Machine => "Machine",
            Self::Node => "Node",
            Self::Pod => "Pod",
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A part of the observation that is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// Which part.
    pub part: PartName,
    /// Why.
    pub reason: String,
}

impl Unknown {
    pub(crate) fn new(part: PartName, reason: &str) -> Self {
        let reason = reason.to_owned();
        Self { part, reason }
    }
}

/// The parts of an observation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PartName {
    /// The InstanceGroups of the state store.
    InstanceGroups,
    /// The groups of the cloud.
    Cloud,
    /// The Nodes.
    Nodes,
    /// The Pods.
    Pods,
    /// The addresses of the API's name.
    Dns,
}

impl PartName {
    /// Every part.
    pub const ALL: [Self; 5] = [Self::InstanceGroups, Self::Cloud, Self::Nodes, Self::Pods, Self::Dns];
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InstanceGroups => "InstanceGroups",
            Self::Cloud => "cloud",
            Self::Nodes => "Nodes",
            Self::Pods => "Pods",
            Self::Dns => "dns",
        })
    }
}

/// An InstanceGroup and what the cloud has of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// What the state store says.
    pub group: GroupSummary,
    /// What the cloud has: all zero where it has no such group, absent where the cloud is unknown.
    pub cloud: Option<GroupCounts>,
}

/// How many instances a group has in the cloud; of several groups for one InstanceGroup, the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Members that are not detached: what is held against the target.
    pub current: u32,
    /// Members that are not detached and whose Node is ready; absent where Nodes are unknown.
    pub ready: Option<u32>,
    /// Members that are not detached and were made from an older definition; absent where that of one of them is not known.
    pub needs_update: Option<u32>,
    /// How many the cloud means to have.
    pub target: u32,
    /// The fewest that it may mean to have.
    pub min: u32,
    /// The most that it may mean to have.
    pub max: u32,
}

/// A Node of one of the cluster's instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its zone; empty when it does not say.
    pub zone: String,
    /// The role of its group: `control-plane`, `apiserver` or `node`.
    pub role: &'static str,
    /// Its label for the host name; empty when it has none.
    pub hostname: String,
    /// The status of its Ready condition.
    pub status: ConditionStatus,
    /// Whether it is ready, its network too.
    pub ready: bool,
    /// The group of its instance.
    pub instance_group: InstanceGroupName,
}

/// How many there are of what; absent where it could not be known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Nodes of the table that are ready.
    pub nodes_ready: Option<u32>,
    /// Nodes of the table that are not.
    pub nodes_not_ready: Option<u32>,
    /// Pods that a ready control-plane node should run and does not.
    pub pods_missing: Option<u32>,
    /// Pods of the system with a container that is not ready.
    pub pods_not_ready: Option<u32>,
    /// Pods of the system that are pending.
    pub pods_pending: Option<u32>,
    /// Pods of the system in unknown phase.
    pub pods_unknown: Option<u32>,
}

/// The verdict in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is known, and all is well.
    Ready,
    /// Something is wrong, whatever else is unknown.
    Failed,
    /// Nothing is known to be wrong, but not all is known.
    Unknown,
}

impl Verdict {
    /// The verdict in one word.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match (self.failures.is_empty(), self.unknown.is_empty()) {
            (false, _) => Outcome::Failed,
            (true, false) => Outcome::Unknown,
            (true, true) => Outcome::Ready,
        }
    }

    /// How many failures there are of `kind`.
    #[must_use]
    pub fn failures_of(&self, kind: FailureKind) -> usize {
        self.failures.iter().filter(|failure| failure.kind == kind).count()
    }
}
