//! The observations of the coordinator and of the agents.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use tidewaiter_api::NodeName;
use tidewaiter_api::containership::{Cordon, UpgradeStatus};
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE, NODE_POOL_LABEL, ROLE_CONTROL_PLANE_LABEL};

use crate::drain::RemainingPod;
use crate::refusal::Refusal;
use crate::selector::Selector;
use crate::version::Version;
use crate::window::Windows;

/// The label of control-plane nodes before Kubernetes 1.20.
const MASTER_LABEL: &str = "node-role.kubernetes.io/master";

/// The observations of the coordinator. The upgrades are as of one moment of one cache; the nodes may be older or
/// newer.
#[derive(Clone, Copy, Debug)]
pub struct Observation<'a> {
    /// The upgrade that is decided about.
    pub upgrade: &'a Upgrade,
    /// All upgrades. The one that is decided about may be among them.
    pub upgrades: &'a [Upgrade],
    /// All nodes of the cluster, by name.
    pub nodes: &'a [Node],
    /// The version of the API server that answers.
    pub api_server: &'a Version,
    /// The health of the cluster.
    pub health: &'a Health,
    /// The pods that have not left a node, by node. A node that is missing was not read, or its pods cannot be read.
    pub left: &'a BTreeMap<NodeName, Vec<RemainingPod>>,
    /// The time of the coordinator.
    pub now: Timestamp,
}

/// The health of the cluster besides its Nodes. What the cluster does not have is not required.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// The `ClusterHealth` that is not Healthy, in words; None if all are.
    pub unhealthy: Option<String>,
    /// True if the API server says that etcd does not answer it.
    pub etcd_failed: bool,
    /// True if the rest cannot be read. Then the cluster does not count as healthy.
    pub is_unknown: bool,
}

/// An upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// The name of the object.
    pub name: String,
    /// The uid of the object: a name may be used again.
    pub uid: String,
    /// The generation of the object, which each change of the progress increments.
    pub generation: i64,
    /// The time when it was created.
    pub created: Option<Timestamp>,
    /// True if it has the label that permits it.
    pub managed: bool,
    /// True if it is being deleted, which aborts it.
    pub deleted: bool,
    /// The spec, or the reason why it is refused.
    pub spec: Result<Spec, Refusal>,
    /// The progress so far.
    pub progress: Progress,
}

/// The parsed spec of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// The version to upgrade to.
    pub target: Version,
    /// The nodes to upgrade, of those with the label that permits it.
    pub selector: Selector,
    /// The time after which a node in progress has failed.
    pub timeout: SignedDuration,
    /// The operator's policy.
    pub policy: Policy,
}

/// The operator's policy. The default adds nothing; the defaults of absent fields are in [`form`](crate::form).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The number of workers of each node pool that may be upgraded at once, if their agents can. None: one worker at a
    /// time.
    pub max_unavailable: Option<PoolLimit>,
    /// The number of failed nodes after which the upgrade ends. None: it continues whatever fails.
    pub max_failures: Option<usize>,
    /// The time for which a node must be at the version and Ready before it is done, and must not be so before it has
    /// fallen back.
    pub min_ready: SignedDuration,
    /// No further node is started.
    pub paused: bool,
    /// No further node is started, and the upgrade ends.
    pub aborted: bool,
    /// A node is started only while the cluster is healthy.
    pub require_healthy: bool,
    /// A node is started only within one of them.
    pub windows: Windows,
    /// The drain of each node before it is started; None if it is not.
    pub drain: Option<DrainPolicy>,
    /// The trial of the first nodes; None if they are not.
    pub canary: Option<CanaryPolicy>,
}

/// The number of workers of a node pool that may be upgraded at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PoolLimit {
    /// This many.
    Nodes(usize),
    /// This percentage of the pool, rounded down.
    Percent(usize),
}

impl PoolLimit {
    /// The number for a pool of this size. At least one, so that the upgrade gets on.
    #[must_use]
    pub fn of(self, size: usize) -> usize {
        let limit = match self {
            Self::Nodes(nodes) => nodes,
            Self::Percent(percent) => size.saturating_mul(percent) / 100,
        };
        limit.max(1)
    }
}

/// The trial of the first nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CanaryPolicy {
    /// The number of nodes.
    pub nodes: usize,
    /// The time for which the cluster must be healthy after them.
    pub soak: SignedDuration,
}

/// The drain of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainPolicy {
    /// The time that its pods may take to leave it.
    pub timeout: SignedDuration,
    /// True if it is started then, and not failed.
    pub force: bool,
}

/// The progress of an upgrade.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The state of the upgrade.
    pub cluster: UpgradeStatus,
    /// The state of each node that was started.
    pub nodes: BTreeMap<NodeName, NodeState>,
    /// The node that was started last, while it is in progress.
    pub current: Option<NodeName>,
    /// The nodes that it takes out of service. An entry is there from before the node is cordoned until after it is
    /// uncordoned.
    pub cordons: BTreeMap<NodeName, Cordon>,
    /// The nodes in progress that have everything but the minimum time, and since when.
    pub verifying: BTreeMap<NodeName, Timestamp>,
    /// The nodes that were done and are not at the target or not Ready any more, and since when.
    pub fallen_back: BTreeMap<NodeName, Timestamp>,
    /// The nodes in progress whose start was moved to when the signature of their script counts, and when it was
    /// before.
    pub postponed: BTreeMap<NodeName, Timestamp>,
    /// The time since which the cluster has been healthy after the canaries.
    pub soaking_since: Option<Timestamp>,
}

/// The state of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// It is being upgraded.
    InProgress {
        /// The start; None if what was recorded cannot be read.
        since: Option<Timestamp>,
    },
    /// Its script has succeeded, and it was at the target and Ready for the minimum time.
    Success,
    /// It did not get there, or fell back.
    Failed,
}

/// The report of a node on the upgrade that is decided about, in the `NodeReport` of its agent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HostReport {
    /// No report: the agent has no reports of upgrades. The version and Ready decide alone.
    #[default]
    Silent,
    /// No final report yet, or an unreadable one.
    Pending,
    /// The script runs, or its way back.
    Running,
    /// Nothing final: the script cannot be run now, and is retried. The text is the reason.
    Blocked(String),
    /// The signature of the script counts from this time on, and no script runs before.
    Early(Timestamp),
    /// The script has succeeded.
    Succeeded,
    /// The script does not run any more, or never will, and has not succeeded. It says why.
    Failed(String),
}

/// A node, as the API server shows it. Its kubelet writes everything but the name and the labels of roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: NodeName,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The version of its kubelet; None if it is missing or cannot be read.
    pub kubelet: Option<Version>,
    /// The versions of the parts of the control plane that run on it as pods.
    pub components: Vec<Version>,
    /// True if it is Ready.
    pub ready: bool,
    /// The time since which it is, or is not, Ready, by the clock of the writer of the condition.
    pub ready_changed: Option<Timestamp>,
    /// The time when the Node was created: one that registers again has lost what its agent reported.
    pub created: Option<Timestamp>,
    /// The time when its kubelet last renewed the Lease of the Node, by the clock of the node. None without a
    /// Lease, or if it was not read.
    pub renewed: Option<Timestamp>,
    /// The report of its host on the upgrade.
    pub host: HostReport,
    /// True if its agent follows the status of its own node, and not only `currentNode`.
    pub parallel: bool,
    /// The reason why its host would refuse every script, as its agent reports. Nothing is decided by it.
    pub host_problem: Option<String>,
    /// True if it is cordoned.
    pub cordoned: bool,
    /// The upgrade that has cordoned it, by the mark on the Node. Its kubelet may remove the mark, and then the node
    /// stays cordoned.
    pub cordoned_by: Option<String>,
}

impl Spec {
    /// The nodes to upgrade, of these.
    pub fn select<'a>(&self, nodes: &'a [Node]) -> impl Iterator<Item = &'a Node> {
        nodes
            .iter()
            .filter(|node| node.is_managed() && self.selector.matches(&node.labels))
    }
}

impl Upgrade {
    /// Returns true if it has started a node, or taken one out of service.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        !self.progress.nodes.is_empty() || !self.progress.cordons.is_empty()
    }

    /// Returns true if it is in progress.
    #[must_use]
    pub fn is_in_progress(&self) -> bool {
        self.progress.cluster == UpgradeStatus::InProgress
    }

    /// Returns true if it goes before `other`: the one that has started a node, then the older one, then the first by
    /// name.
    #[must_use]
    pub fn precedes(&self, other: &Self) -> bool {
        let rank = |upgrade: &Self| (!upgrade.has_begun(), upgrade.created);
        (rank(self), &self.name) < (rank(other), &other.name)
    }

    /// Returns true if it waits for nothing but its turn, or for the cluster to be healthy, which every upgrade should
    /// wait for.
    pub(crate) fn may_begin(&self, now: Timestamp) -> bool {
        let waits = |spec: &Spec| spec.policy.paused || spec.policy.windows.opens(now).is_some();
        self.progress.cluster == UpgradeStatus::NotStarted && self.managed && !self.spec.as_ref().is_ok_and(waits)
    }
}

impl Progress {
    /// The nodes that are in progress, and since when.
    pub fn in_progress(&self) -> impl Iterator<Item = (&NodeName, Option<Timestamp>)> {
        self.nodes.iter().filter_map(|(name, state)| match state {
            NodeState::InProgress { since } => Some((name, *since)),
            NodeState::Success | NodeState::Failed => None,
        })
    }

    /// The number of nodes in this state.
    #[must_use]
    pub fn count(&self, state: NodeState) -> usize {
        self.nodes.values().filter(|found| **found == state).count()
    }
}

impl Node {
    /// The reason why its host does not run the script now; None if it reports none.
    #[must_use]
    pub fn blocked(&self) -> Option<&str> {
        match &self.host {
            HostReport::Blocked(why) => Some(why),
            _ => None,
        }
    }

    /// Returns true if it is of the control plane. A kubelet cannot give itself the label.
    #[must_use]
    pub fn is_control_plane(&self) -> bool {
        self.labels.contains_key(ROLE_CONTROL_PLANE_LABEL) || self.labels.contains_key(MASTER_LABEL)
    }

    /// Returns true if an upgrade may concern it at all.
    #[must_use]
    pub fn is_managed(&self) -> bool {
        self.labels
            .get(MANAGED_LABEL)
            .is_some_and(|value| value == MANAGED_VALUE)
    }

    /// Its node pool; empty without one.
    pub(crate) fn pool(&self) -> &str {
        self.labels.get(NODE_POOL_LABEL).map_or("", String::as_str)
    }

    /// Every version on it that is known.
    pub(crate) fn versions(&self) -> impl Iterator<Item = &Version> {
        self.kubelet.iter().chain(&self.components)
    }

    /// Returns true if everything on it is at the target.
    pub(crate) fn is_at(&self, target: &Version) -> bool {
        self.kubelet.is_some() && self.versions().all(|version| version.is(target))
    }

    /// Returns true if there is nothing to do on it: everything is at the target, and its host says nothing else of the
    /// upgrade.
    pub(crate) fn is_left_alone(&self, target: &Version) -> bool {
        self.is_at(target) && !self.is_begun()
    }

    /// Returns true if its host has begun the upgrade, and has not finished it: it was recorded by an object that is
    /// gone.
    pub(crate) fn is_begun(&self) -> bool {
        matches!(self.host, HostReport::Running | HostReport::Failed(_))
    }

    /// The oldest version on it.
    pub(crate) fn oldest(&self) -> Option<Version> {
        self.versions().min_by(|a, b| a.order(b)).cloned()
    }
}
