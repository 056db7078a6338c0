//! The texts about an upgrade that waits, fails or ends.

use std::fmt;

use tidewaiter_api::NodeName;

use super::{Ending, NodeFailure, Unhealthy, Wait};
use crate::drain::{DrainBlocker, RemainingPod};
use crate::version::Version;

/// The maximum number of nodes that are named.
const NAMED: usize = 5;
/// The maximum number of pods that are named.
const PODS_NAMED: usize = 3;

fn shown(version: Option<&Version>) -> String {
    version.map_or_else(|| "no known version".to_owned(), Version::to_string)
}

impl fmt::Display for NodeFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut { blocked: Some(why), .. } => write!(f, "its host reported {why} for nodeTimeoutSeconds"),
            Self::TimedOut {
                at_target: true,
                ready: true,
                ..
            } => f.write_str(
                "it is at the version and Ready, and its NodeReport did not say within nodeTimeoutSeconds that the script succeeded",
            ),
            Self::TimedOut { at_target: true, .. } => {
                f.write_str("it is at the version, and did not become Ready within nodeTimeoutSeconds")
            }
            Self::Early(from) => write!(f, "no script was run: its signature counts from {from} on, and the upgrade ended"),
            Self::Host(said) => write!(f, "its host reports {said}"),
            Self::FellBack { at_target: true, .. } => {
                f.write_str("it was done, and then was not Ready for minReadySeconds")
            }
            Self::FellBack { version, .. } => {
                let version = shown(version.as_ref());
                write!(f, "it was done, and then its kubelet was at {version} for minReadySeconds")
            }
            Self::TimedOut { version, ready, .. } => {
                let version = shown(version.as_ref());
                let ready = if *ready { "Ready" } else { "not Ready" };
                write!(
                    f,
                    "after nodeTimeoutSeconds its kubelet is at {version}, and the node is {ready}"
                )
            }
            Self::Refused(refusal) => write!(f, "no script was run: {refusal}"),
            Self::NotDrained(None) => f.write_str(
                "no script was run: the pods on it could not be read within drainTimeoutSeconds (the Event DrainFailed says why)",
            ),
            Self::NotDrained(Some(left)) if left.is_empty() => {
                f.write_str("no script was run: it could not be cordoned within drainTimeoutSeconds")
            }
            Self::NotDrained(Some(left)) => {
                let left = pods(left);
                write!(f, "no script was run: its pods did not leave it within drainTimeoutSeconds: {left}")
            }
        }
    }
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => f.write_str("every selected node is at the version"),
            Self::Failures(1) => f.write_str("one node failed; no other selected node is left to upgrade"),
            Self::Failures(count) => write!(f, "{count} nodes failed; no other selected node is left to upgrade"),
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Aborted => f.write_str(
                "it was aborted (spec.policy.aborted) or deleted; nodes that were not started stay as they are",
            ),
            Self::CanaryFailed => f.write_str(
                "one of the first nodes (spec.policy.canary) failed; nodes that were not started stay as they are",
            ),
            Self::TooManyFailures(1) => f.write_str(
                "one node failed, and spec.policy.maxFailures is reached; nodes that were not started stay as they are",
            ),
            Self::TooManyFailures(count) => write!(
                f,
                "{count} nodes failed, and spec.policy.maxFailures is reached; nodes that were not started stay as they are"
            ),
        }
    }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Label => {
                f.write_str("the label containership.io/managed=true is missing; add it to permit the upgrade")
            }
            Self::Upgrade(name) => write!(f, "the upgrade {name} goes first"),
            Self::Paused => f.write_str("spec.policy.paused is set; remove it to continue"),
            Self::Window(opens) => write!(f, "the next maintenance window opens at {opens}"),
            Self::Health(unhealthy) => write!(f, "the cluster must be healthy (spec.policy), and {unhealthy}"),
            Self::Drain(node, Some(left)) if !left.is_empty() => write!(f, "draining {node}: {}", pods(left)),
            Self::Drain(node, _) => write!(f, "draining {node}"),
            Self::Soak(until) => write!(
                f,
                "the canaries are done; it goes on if the cluster is healthy until {until}"
            ),
            Self::Uncordon(nodes) => write!(f, "uncordoning {}", listed(nodes)),
            Self::Recovery(nodes) => write!(
                f,
                "{} must be at the version and Ready again: done before, and failed after minReadySeconds",
                listed(nodes)
            ),
            Self::Nodes(nodes) => write!(f, "upgrading {}", listed(nodes)),
            Self::Aborted(last) => write!(
                f,
                "aborted (spec.policy.aborted) or deleted: it starts no further node, and is still {last}"
            ),
        }
    }
}

/// The pods that have not left a node, those that something keeps first.
pub(crate) fn pods(left: &[RemainingPod]) -> String {
    let mut left: Vec<&RemainingPod> = left.iter().collect();
    left.sort_by_key(|left| left.blocker == DrainBlocker::Leaving);
    let named: Vec<String> = left.iter().take(PODS_NAMED).map(ToString::to_string).collect();
    let more = left.len().saturating_sub(PODS_NAMED);
    let named = named.join("; ");
    if more > 0 {
        format!("{named}; and {more} more")
    } else {
        named
    }
}

impl fmt::Display for Unhealthy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nodes(nodes) if nodes.len() == 1 => write!(f, "the Node {} is not Ready", listed(nodes)),
            Self::Nodes(nodes) => write!(f, "{} Nodes are not Ready: {}", nodes.len(), listed(nodes)),
            Self::Etcd => f.write_str("etcd does not answer the API server"),
            Self::Cluster(words) => f.write_str(words),
            Self::Unknown => f.write_str("its health cannot be read"),
        }
    }
}

/// The names of nodes. A condition has no room for thousands.
fn listed(nodes: &[NodeName]) -> String {
    let named: Vec<&str> = nodes.iter().take(NAMED).map(NodeName::as_str).collect();
    let more = nodes.len().saturating_sub(NAMED);
    let named = named.join(", ");
    if more > 0 {
        format!("{named} and {more} more")
    } else {
        named
    }
}
