//! The reasons why an upgrade, or the upgrade of a node, is refused. The message names the value and the remedy.

use tidewaiter_api::NodeName;
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE};

use crate::version::{InvalidVersion, Version};

/// The reason why an upgrade is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The target is no version.
    #[error("spec.targetVersion: {0}. Create another upgrade.")]
    Target(InvalidVersion),
    /// etcd has a name, but was never supported.
    #[error("spec.type is etcd, which is not supported. Create an upgrade of type kubernetes.")]
    Etcd,
    /// Without a timeout each node would fail at once; with one that is too long none would ever.
    #[error("spec.nodeTimeoutSeconds is {0}, not from 1 to 86400 (a day). Create another upgrade.")]
    Timeout(i64),
    /// The number of values does not fit the operator.
    #[error("spec.labelSelector: the operator for the label {label} takes {wanted}. Create another upgrade.")]
    Selector {
        /// The label.
        label: String,
        /// The rule.
        wanted: &'static str,
    },
    /// A maintenance window cannot be read.
    #[error("{field} is {value}, not {wanted}. Create another upgrade with a correct one.")]
    Window {
        /// The field.
        field: String,
        /// Its value.
        value: String,
        /// The expected form.
        wanted: &'static str,
    },
    /// The number of nodes that may be upgraded at once is malformed.
    #[error(
        "spec.policy.maxUnavailable is {0:?}, not a number or a percentage such as 25%. Create another upgrade with a correct one."
    )]
    MaxUnavailable(String),
    /// No node is selected.
    #[error(
        "no Node with the label {MANAGED_LABEL}={MANAGED_VALUE} matches spec.labelSelector, so nothing would be upgraded. Label the nodes, or \
         create another upgrade."
    )]
    NoNode,
    /// The version of a node is not known.
    #[error(
        "the kubelet of {0} reports no version that can be read. Wait until the node is Ready, and create another upgrade."
    )]
    Unknown(NodeName),
    /// A version never goes down.
    #[error(
        "{node} is at {version}, which is newer than {target}, and a version never goes down. Leave the node out with spec.labelSelector."
    )]
    Newer {
        /// The node.
        node: NodeName,
        /// Its version.
        version: Version,
        /// The target.
        target: Version,
    },
    /// A minor version would be skipped.
    #[error(
        "{node} is at {version}: an upgrade to {target} would skip a minor version. Upgrade it to v{}.{} first.",
        version.major(),
        version.minor() + 1
    )]
    SkipsMinor {
        /// The node.
        node: NodeName,
        /// Its version.
        version: Version,
        /// The target.
        target: Version,
    },
    /// Another major version.
    #[error("{node} is at {version}, of another major version than {target}. Tidewaiter cannot upgrade between them.")]
    OtherMajor {
        /// The node.
        node: NodeName,
        /// Its version.
        version: Version,
        /// The target.
        target: Version,
    },
    /// A kubelet is never newer than the control plane.
    #[error(
        "the control plane is at {control_plane}, and a kubelet must not be of a newer minor version ({target}). Upgrade the control plane first."
    )]
    AheadOfControlPlane {
        /// The oldest version of the control plane.
        control_plane: Version,
        /// The target.
        target: Version,
    },
    /// A kubelet is too many minor versions older than the control plane.
    #[error(
        "{node} is at {version}, and a control plane at {target} supports kubelets that are at most {skew} minor versions older. Upgrade the \
         node first."
    )]
    LeftBehind {
        /// The node.
        node: NodeName,
        /// Its version.
        version: Version,
        /// The target.
        target: Version,
        /// The supported skew.
        skew: u64,
    },
}
