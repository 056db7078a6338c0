//! The decisions of [`step`](crate::step()).

mod texts;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp, Zoned};
use tidewaiter_api::NodeName;
use tidewaiter_api::containership::{Cordon, UpgradeStatus};

use crate::drain::RemainingPod;
use crate::observation::{NodeState, Progress};
use crate::refusal::Refusal;
use crate::version::Version;

pub(crate) use self::texts::pods;

/// The interval at which the health of the cluster is read while an upgrade waits for it: a part of it cannot be
/// watched.
const HEALTH_PERIOD: SignedDuration = SignedDuration::from_secs(10);

/// The interval at which the reports of the nodes in progress are read while they are waited for. An agent writes its
/// report at most this often.
pub(crate) const REPORT_PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// The interval at which the pods of a node that is drained are listed and evicted: kubectl drain does it as often.
const DRAIN_PERIOD: SignedDuration = SignedDuration::from_secs(5);

/// The writes that are due now, as one write, and what the upgrade waits for afterwards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// In this order.
    pub orders: Vec<Order>,
    /// The reason why nothing more is done; None if the upgrade is over, or the next step follows at once.
    pub wait: Option<Wait>,
    /// The time when to decide again, although nothing that is watched has changed.
    pub wake: Option<Timestamp>,
    /// The effects on Nodes and pods after the write. Each may be repeated.
    pub effects: Vec<Effect>,
}

/// An effect on a Node, or on the pods on it. It is recorded in the progress before: a coordinator that is interrupted
/// before the effect repeats it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Cordon the node, with our mark.
    Cordon(NodeName),
    /// Evict the pods that must leave the node.
    Evict(NodeName),
    /// Delete the pods that have not left the node.
    Delete(NodeName),
    /// Uncordon the node, and remove our mark.
    Uncordon(NodeName),
}

/// A change of the progress.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    /// The upgrade claims the cluster. The next step starts the first node, unless another upgrade has a claim as well.
    Begin,
    /// The upgrade gives up its claim, because another one goes first.
    Withdraw,
    /// A node is to be taken out of service from now on.
    Cordon {
        /// The node.
        node: NodeName,
        /// True if somebody else had cordoned it before.
        before: bool,
    },
    /// A node is in service again.
    Release(NodeName),
    /// The cluster is healthy after the canaries, or not any more.
    Soak {
        /// True if it is healthy.
        healthy: bool,
    },
    /// A node is to be upgraded from now on.
    Start(NodeName),
    /// A node in progress has its time from this moment on, because the signature of its script does not count before.
    Postpone {
        /// The node.
        node: NodeName,
        /// The time.
        to: Timestamp,
    },
    /// A node in progress has everything but the minimum time from now on, or not any more.
    Verify {
        /// The node.
        node: NodeName,
        /// True if it has everything but the minimum time.
        holds: bool,
    },
    /// A node is done.
    Succeed(NodeName),
    /// A node that was done is not at the target or not Ready from now on, or is so again.
    FallBack {
        /// The node.
        node: NodeName,
        /// True if it is not at the target, or not Ready.
        holds: bool,
    },
    /// A node has failed.
    Fail(NodeName, NodeFailure),
    /// The upgrade is over.
    Finish(Ending),
}

/// The reason why a node has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeFailure {
    /// It did not get there in time.
    TimedOut {
        /// The version of its kubelet, if there is one.
        version: Option<Version>,
        /// True if everything on it is at the target.
        at_target: bool,
        /// True if it is Ready.
        ready: bool,
        /// The reason why its host has not run the script.
        blocked: Option<String>,
    },
    /// The upgrade ended before the signature of its script counted.
    Early(Timestamp),
    /// Its host says that the script has failed, or will not run.
    Host(String),
    /// It was done, and then was not as it had to be for the minimum time.
    FellBack {
        /// The version of its kubelet, if there is one.
        version: Option<Version>,
        /// True if everything on it is at the target.
        at_target: bool,
    },
    /// It cannot be upgraded. No script was run.
    Refused(Refusal),
    /// These pods have not left it in time; None if nobody could read which are on it. No script was run.
    NotDrained(Option<Vec<RemainingPod>>),
}

/// The end of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// No node failed.
    Success,
    /// This many nodes failed; the others are done.
    Failures(usize),
    /// It was refused, or cannot continue.
    Refused(Refusal),
    /// The operator has aborted it.
    Aborted,
    /// This many nodes failed, which is the limit.
    TooManyFailures(usize),
    /// A canary failed.
    CanaryFailed,
}

/// The condition that an upgrade waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The label that permits it.
    Label,
    /// Another upgrade.
    Upgrade(String),
    /// The operator.
    Paused,
    /// The next maintenance window.
    Window(Zoned),
    /// The cluster to be healthy. Contains the unhealthy part.
    Health(Unhealthy),
    /// Pods to leave a node; None if they were not looked at yet.
    Drain(NodeName, Option<Vec<RemainingPod>>),
    /// Nodes to be uncordoned.
    Uncordon(Vec<NodeName>),
    /// The cluster to be healthy until this time, after the canaries.
    Soak(Timestamp),
    /// Nodes that were done to be at the target and Ready again, or to fail.
    Recovery(Vec<NodeName>),
    /// Nodes that are in progress.
    Nodes(Vec<NodeName>),
    /// A failure that ends the upgrade: the operator has aborted it.
    Aborted(Box<Wait>),
}

/// The reason why the cluster is not healthy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unhealthy {
    /// These Nodes are not Ready.
    Nodes(Vec<NodeName>),
    /// etcd does not answer the API server.
    Etcd,
    /// A `ClusterHealth` is not Healthy, in its words.
    Cluster(String),
    /// The health cannot be read.
    Unknown,
}

impl Ending {
    /// The status of the upgrade then.
    #[must_use]
    pub fn status(&self) -> UpgradeStatus {
        match self {
            Self::Success => UpgradeStatus::Success,
            _ => UpgradeStatus::Failed,
        }
    }

    /// The reason as one word, for programs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Success => "Succeeded",
            Self::Failures(_) => "NodesFailed",
            Self::Refused(_) => "Refused",
            Self::Aborted => "Aborted",
            Self::TooManyFailures(_) => "TooManyFailures",
            Self::CanaryFailed => "CanaryFailed",
        }
    }
}

impl Wait {
    /// The reason as one word, for programs.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Label => "NotPermitted",
            Self::Upgrade(_) => "OtherUpgrade",
            Self::Paused => "Paused",
            Self::Window(_) => "MaintenanceWindow",
            Self::Health(_) => "Unhealthy",
            Self::Drain(..) => "Draining",
            Self::Uncordon(_) => "Uncordoning",
            Self::Soak(_) => "Soaking",
            Self::Recovery(_) => "FellBack",
            Self::Nodes(_) => "Upgrading",
            Self::Aborted(_) => "Aborting",
        }
    }

    /// The time when to decide again, although nothing that is watched has changed.
    #[must_use]
    pub fn wake(&self, now: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Window(opens) => Some(opens.timestamp()),
            Self::Health(_) => now.checked_add(HEALTH_PERIOD).ok(),
            Self::Drain(..) => now.checked_add(DRAIN_PERIOD).ok(),
            Self::Soak(until) => now.checked_add(HEALTH_PERIOD).ok().map(|next| next.min(*until)),
            Self::Aborted(last) => last.wake(now),
            Self::Label | Self::Upgrade(_) | Self::Paused | Self::Uncordon(_) | Self::Recovery(_) | Self::Nodes(_) => {
                None
            }
        }
    }
}

impl Progress {
    /// Applies an order at this time.
    pub fn apply(&mut self, order: &Order, now: Timestamp) {
        match order {
            Order::Begin => self.cluster = UpgradeStatus::InProgress,
            Order::Withdraw => *self = Self::default(),
            Order::Cordon { node, before } => {
                let (since, before) = (whole_seconds(now), *before);
                self.cordons.insert(node.clone(), Cordon { since, before });
            }
            Order::Release(node) => {
                self.cordons.remove(node);
            }
            Order::Soak { healthy } => self.soaking_since = healthy.then(|| whole_seconds(now)),
            Order::Start(node) => {
                self.nodes
                    .insert(node.clone(), NodeState::InProgress { since: Some(now) });
                self.current = Some(node.clone());
            }
            Order::Postpone { node, to } => {
                let state = NodeState::InProgress { since: Some(*to) };
                if let Some(NodeState::InProgress { since }) = self.nodes.insert(node.clone(), state) {
                    self.postponed.insert(node.clone(), whole_seconds(since.unwrap_or(now)));
                }
            }
            Order::Verify { node, holds } => note(&mut self.verifying, node, *holds, now),
            Order::FallBack { node, holds } => note(&mut self.fallen_back, node, *holds, now),
            Order::Succeed(node) => self.settle(node, NodeState::Success),
            Order::Fail(node, _) => self.settle(node, NodeState::Failed),
            Order::Finish(ending) => {
                self.cluster = ending.status();
                self.current = None;
                self.fallen_back.clear();
            }
        }
    }

    fn settle(&mut self, node: &NodeName, state: NodeState) {
        self.nodes.insert(node.clone(), state);
        self.verifying.remove(node);
        self.fallen_back.remove(node);
        self.postponed.remove(node);
        let current = self.in_progress().map(|(name, _)| name.clone()).next();
        self.current = current;
    }
}

fn note(times: &mut BTreeMap<NodeName, Timestamp>, node: &NodeName, holds: bool, now: Timestamp) {
    if holds {
        times.insert(node.clone(), whole_seconds(now));
    } else {
        times.remove(node);
    }
}

/// Rounds to whole seconds, as times are stored.
pub(crate) fn whole_seconds(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).unwrap_or(time)
}
