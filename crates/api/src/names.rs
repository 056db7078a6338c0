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

/// The role labels that are taken from a proven Node when its group does not give them, whoever set them.
///
/// Source: kops-controller removes exactly these three; every other label that it does not know is left alone.
pub const EXCLUSIVE_ROLE_LABELS: [&str; 3] = [ROLE_API_SERVER_LABEL, ROLE_NODE_LABEL, ROLE_CONTROL_PLANE_LABEL];

/// Taint key of a Node that has registered and is not yet identified; it goes with the patch that brings the labels.
pub const UNIDENTIFIED_TAINT: &str = "tidewaiter.dev/unidentified";

/// The Lease that a Go kops-controller holds too, so that only one of the two labels nodes.
pub const KOPS_LEASE: &str = "kops-controller-leader";

/// Namespace of kOps' own components.
pub const KOPS_NAMESPACE: &str = "kube-system";

/// API group of Tidewaiter's own kinds.
pub const API_GROUP: &str = "tidewaiter.dev";
