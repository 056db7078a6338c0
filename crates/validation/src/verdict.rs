//! The verdict: failures, unknown parts, and numbers.
//!
//! Equal observations give equal verdicts: every list is sorted. A number that is unknown is absent, never zero.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use tidewaiter_api::{ClusterName, ConditionStatus, InstanceGroupName};
use tidewaiter_kops::GroupSummary;

/// The result of validating a cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The cluster.
    pub cluster: ClusterName,
    /// The failures: DNS; then by group its size and its machines, the missing groups, the pods, and the control
    /// plane's static pods.
    pub failures: Vec<Failure>,
    /// The number of further failures of each kind, if [only some are listed](crate::Options::counts_only).
    pub unlisted: BTreeMap<FailureKind, usize>,
    /// Failures that are tolerated because no more workers than allowed are not ready; in the order of `failures`.
    pub tolerated: Vec<Failure>,
    /// The unknown parts; rules that need them were not applied.
    pub unknown: Vec<Unknown>,
    /// The InstanceGroups, by name.
    pub groups: Vec<GroupRow>,
    /// The Nodes of all instances whose role is judged, by name. A Node without an instance is not included.
    pub nodes: Vec<NodeRow>,
    /// The numbers of Nodes and pods by state, including tolerated ones.
    pub counts: Counts,
    /// True if Nodes count whose claims are trusted without proof, because Tidewaiter is not installed.
    pub trusts_claims: bool,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of its subject.
    pub kind: FailureKind,
    /// Its subject: the name of the group or Node, the id of the instance, `namespace/name` of a pod, or `apiserver`.
    pub name: String,
    /// The failure in words.
    pub message: String,
    /// The InstanceGroup that it belongs to. A cluster-critical pod belongs to none.
    pub instance_group: Option<InstanceGroupName>,
}

/// The kind of a failure's subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureKind {
    /// The name of the API.
    Dns,
    /// A group, missing or too small.
    InstanceGroup,
    /// An instance without a Node.
    Machine,
    /// A Node.
    Node,
    /// A system pod.
    Pod,
}

impl FailureKind {
    /// Every kind.
    pub const ALL: [Self; 5] = [Self::Dns, Self::InstanceGroup, Self::Machine, Self::Node, Self::Pod];

    /// The name in kOps' output.
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

/// An unknown part of the observation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The part.
    pub part: PartName,
    /// The reason.
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
    /// The `NodeIdentities`, which prove whose Nodes they are.
    NodeIdentities,
    /// The Pods.
    Pods,
    /// The addresses of the API's name.
    Dns,
}

impl PartName {
    /// Every part.
    pub const ALL: [Self; 6] = [
        Self::InstanceGroups,
        Self::Cloud,
        Self::Nodes,
        Self::NodeIdentities,
        Self::Pods,
        Self::Dns,
    ];
}

impl fmt::Display for PartName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::InstanceGroups => "InstanceGroups",
            Self::Cloud => "cloud",
            Self::Nodes => "Nodes",
            Self::NodeIdentities => "NodeIdentities",
            Self::Pods => "Pods",
            Self::Dns => "dns",
        })
    }
}

/// An InstanceGroup and its groups in the cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRow {
    /// The InstanceGroup from the state store.
    pub group: GroupSummary,
    /// The counts from the cloud: all zero if the cloud has no such group, absent if the cloud is unknown.
    pub cloud: Option<GroupCounts>,
}

/// The numbers of a group's instances in the cloud; if an InstanceGroup has several groups, the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GroupCounts {
    /// Members that are not detached and therefore count towards the target.
    pub current: u32,
    /// Members that are not detached and whose Node is ready; absent if Nodes are unknown.
    pub ready: Option<u32>,
    /// Members that are not detached and out of date; absent if that is unknown for one of them.
    pub needs_update: Option<u32>,
    /// The target size of the group; absent, as the other sizes, if the group is missing from the cloud.
    pub target: Option<u32>,
    /// The minimum size of the group.
    pub min: Option<u32>,
    /// The maximum size of the group.
    pub max: Option<u32>,
}

/// A Node of one of the cluster's instances.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeRow {
    /// Its name.
    pub name: Arc<str>,
    /// Its zone; empty if it has no zone label.
    pub zone: Arc<str>,
    /// The role of its group: `control-plane`, `apiserver` or `node`.
    pub role: &'static str,
    /// Its hostname label; empty if absent.
    pub hostname: Arc<str>,
    /// The status of its Ready condition.
    pub status: ConditionStatus,
    /// True if the Node and its network are ready.
    pub ready: bool,
    /// The group of its instance.
    pub instance_group: InstanceGroupName,
}

/// The numbers of Nodes and pods by state. An unknown number is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// The ready Nodes of the table.
    pub nodes_ready: Option<u32>,
    /// The Nodes of the table that are not ready.
    pub nodes_not_ready: Option<u32>,
    /// Static pods that are missing on a ready control-plane node.
    pub pods_missing: Option<u32>,
    /// System pods with a container that is not ready.
    pub pods_not_ready: Option<u32>,
    /// System pods in phase Pending.
    pub pods_pending: Option<u32>,
    /// System pods in phase Unknown.
    pub pods_unknown: Option<u32>,
}

/// The verdict in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Everything is known, and there are no failures.
    Ready,
    /// There is a failure, whatever else is unknown.
    Failed,
    /// There is no failure, but a part is unknown.
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

    /// The number of failures.
    #[must_use]
    pub fn failure_count(&self) -> usize {
        self.failures.len() + self.unlisted.values().sum::<usize>()
    }

    /// The number of failures of `kind`.
    #[must_use]
    pub fn failures_of(&self, kind: FailureKind) -> usize {
        let listed = self.failures.iter().filter(|failure| failure.kind == kind);
        listed.count() + self.unlisted.get(&kind).copied().unwrap_or_default()
    }
}
