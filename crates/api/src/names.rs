//! Names that others have given and that must match to the letter.
//!
//! Sources: kOps' documentation of instance groups and kops-controller; Kubernetes' well-known labels.

/// Label that names a Node's kOps `InstanceGroup`; on EC2 the same string is the tag that names an instance's group.
pub const INSTANCE_GROUP_LABEL: &str = "kops.k8s.io/instancegroup";

/// Role label of control-plane nodes.
pub const ROLE_CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

/// Role label of worker nodes.
pub const ROLE_NODE_LABEL: &str = "node-role.kubernetes.io/node";

/// Role label of nodes that run only an API server.
pub const ROLE_API_SERVER_LABEL: &str = "node-role.kubernetes.io/api-server";

/// Label of the nodes that may hold the PKI of kops-controller: its `DaemonSet` selects on it.
pub const KOPS_CONTROLLER_PKI_LABEL: &str = "kops.k8s.io/kops-controller-pki";

/// Label that keeps a node out of cloud load balancers.
pub const EXCLUDE_FROM_LOAD_BALANCERS_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Name of the service account that the coordinator ensures in every namespace. Source: the Containership cluster manager.
pub const CONTAINERSHIP_ACCOUNT: &str = "containership";

/// Namespace of the coordinator and of what it mirrors.
pub const CONTAINERSHIP_NAMESPACE: &str = "containership-core";

/// Label of every object that the coordinator makes from a mirrored one.
pub const MANAGED_LABEL: &str = "containership.io/managed";

/// Value of [`MANAGED_LABEL`].
pub const MANAGED_VALUE: &str = "true";

/// The role labels that are taken from a proven Node when its group does not give them, whoever set them.
///
/// Source: kops-controller removes exactly these three; every other label that it does not know is left alone.
pub const EXCLUSIVE_ROLE_LABELS: [&str; 3] = [ROLE_API_SERVER_LABEL, ROLE_NODE_LABEL, ROLE_CONTROL_PLANE_LABEL];

/// Labels that kubelets and cloud controllers give every Node from what they see of it, besides those under
/// [`OBSERVED_PREFIXES`]. Source: Kubernetes' well-known labels; `k8s.io/cloud-provider-aws` is the AWS cloud controller's.
const OBSERVED_LABELS: [&str; 6] = [
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "k8s.io/cloud-provider-aws",
];

/// The older names of such labels, and where something runs: `topology.kubernetes.io/`, `topology.ebs.csi.aws.com/`, ...
const OBSERVED_PREFIXES: [&str; 3] = ["beta.kubernetes.io/", "failure-domain.beta.kubernetes.io/", "topology."];

/// Whether a label says nothing of an `InstanceGroup`, even where one defines it: it is what a kubelet or a cloud controller
/// sees of the Node, or it keeps the Node out of load balancers. The latter gives nobody anything, its kubelet may write it
/// (`NodeRestriction` lets it), people set it on workers, and taking it away would send traffic to the Node.
#[must_use]
pub fn is_of_no_group(key: &str) -> bool {
    let prefixed = |prefix: &&str| key.contains('/') && key.starts_with(*prefix);
    key == EXCLUDE_FROM_LOAD_BALANCERS_LABEL || OBSERVED_LABELS.contains(&key) || OBSERVED_PREFIXES.iter().any(prefixed)
}

/// Effect of the taint on [`UNIDENTIFIED_TAINT`] that quarantine sets.
pub const UNIDENTIFIED_EFFECT: &str = "NoSchedule";

/// Taint key of a Node that has registered and is not yet identified; it goes with the patch that brings the labels.
pub const UNIDENTIFIED_TAINT: &str = "tidewaiter.dev/unidentified";

/// The Lease that a Go kops-controller holds too, so that only one of the two labels nodes.
pub const KOPS_LEASE: &str = "kops-controller-leader";

/// Namespace of kOps' own components.
pub const KOPS_NAMESPACE: &str = "kube-system";

/// API group of Tidewaiter's own kinds.
pub const API_GROUP: &str = "tidewaiter.dev";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_seen_of_a_node_is_of_no_group() {
        for key in [
            "kubernetes.io/os",
            "kubernetes.io/arch",
            "kubernetes.io/hostname",
            "beta.kubernetes.io/instance-type",
            "node.kubernetes.io/instance-type",
            "topology.kubernetes.io/zone",
            "topology.ebs.csi.aws.com/zone",
            "failure-domain.beta.kubernetes.io/region",
            EXCLUDE_FROM_LOAD_BALANCERS_LABEL,
        ] {
            assert!(is_of_no_group(key), "{key}");
        }
        for key in [
            "team",
            "topology.team",
            "kubernetes.io/role",
            "node.kubernetes.io/mine",
            INSTANCE_GROUP_LABEL,
            ROLE_NODE_LABEL,
            KOPS_CONTROLLER_PKI_LABEL,
        ] {
            assert!(!is_of_no_group(key), "{key}");
        }
    }
}
