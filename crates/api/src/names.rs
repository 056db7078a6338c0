//! Names that kOps, Kubernetes and Tidewaiter define and that must match exactly.
//!
//! Sources: kOps' documentation of instance groups and kops-controller; Kubernetes' well-known labels.

/// Label with the name of a Node's kOps `InstanceGroup`. On EC2, the instance's tag for its group has the same key.
pub const INSTANCE_GROUP_LABEL: &str = "kops.k8s.io/instancegroup";

/// Role label of control-plane nodes.
pub const ROLE_CONTROL_PLANE_LABEL: &str = "node-role.kubernetes.io/control-plane";

/// Role label of worker nodes.
pub const ROLE_NODE_LABEL: &str = "node-role.kubernetes.io/node";

/// Role label of nodes that run only an API server.
pub const ROLE_API_SERVER_LABEL: &str = "node-role.kubernetes.io/api-server";

/// Label of the nodes that may have the PKI of kops-controller. Its `DaemonSet` selects nodes by this label.
pub const KOPS_CONTROLLER_PKI_LABEL: &str = "kops.k8s.io/kops-controller-pki";

/// Label that keeps a node out of cloud load balancers.
pub const EXCLUDE_FROM_LOAD_BALANCERS_LABEL: &str = "node.kubernetes.io/exclude-from-external-load-balancers";

/// Label of nodes with a GPU that the device plugin of kOps manages: the plugin's `DaemonSet` selects nodes by this
/// label.
pub const GPU_LABEL: &str = "kops.k8s.io/gpu";

/// Label of nodes that run containers in gVisor: kOps' `RuntimeClass` selects nodes by this label.
pub const GVISOR_LABEL: &str = "kops.k8s.io/gvisor";

/// Name of the service account that the coordinator ensures in every namespace. Source: the Containership cluster
/// manager.
pub const CONTAINERSHIP_ACCOUNT: &str = "containership";

/// Namespace of the coordinator and of what it mirrors.
pub const CONTAINERSHIP_NAMESPACE: &str = "containership-core";

/// Name of the ConfigMap in [`CONTAINERSHIP_NAMESPACE`] that requests the removal of everything that the coordinator
/// manages.
pub const TERMINATE_MARKER: &str = "tidewaiter-terminate";

/// The label of a Node, and of a `NodePoolLabel`, whose value is the id of the node pool in the cloud.
pub const NODE_POOL_LABEL: &str = "containership.io/node-pool-id";

/// Label of every object that the coordinator makes from a mirrored one.
pub const MANAGED_LABEL: &str = "containership.io/managed";

/// Value of [`MANAGED_LABEL`].
pub const MANAGED_VALUE: &str = "true";

/// Finalizer of an `AuthorizationRole` whose `ClusterRole` may exist. Source: the Containership cluster manager.
pub const AUTHORIZATION_ROLE_FINALIZER: &str = "authorizationrole.finalizers.containership.io";

/// Finalizer of an `AuthorizationRoleBinding` whose binding may exist. Source: the Containership cluster manager.
pub const AUTHORIZATION_ROLE_BINDING_FINALIZER: &str = "authorizationrolebinding.finalizers.containership.io";

/// Finalizer of a `ClusterUpgrade` in progress: its deletion aborts it.
pub const UPGRADE_FINALIZER: &str = "clusterupgrade.finalizers.containership.io";

/// Annotation of a Node that an upgrade has cordoned: the name of the `ClusterUpgrade`. Without it, the node stays
/// cordoned.
pub const CORDONED_BY_ANNOTATION: &str = "tidewaiter.dev/cordoned-by";

/// Before the id of a user of the cloud, this is the name of the user in the cluster: in the tokens of the cloud, and
/// in bindings.
pub const USER_PREFIX: &str = "containership.io/user_id#";

/// Before the id of a team of the cloud, this is the name of its group in the cluster.
pub const TEAM_PREFIX: &str = "containership.io/team_id#";

/// Label of the Secret with the credentials of a registry, whose value is the id of the registry in the cloud.
pub const REGISTRY_SECRET_LABEL: &str = "tidewaiter.dev/registry";

/// Name of the Secret with the credentials of a registry, in [`CONTAINERSHIP_NAMESPACE`].
#[must_use]
pub fn registry_secret_name(registry: &str) -> String {
    format!("registry-{registry}")
}

/// The registry whose credentials the Secret of this name holds.
#[must_use]
pub fn registry_of_secret(name: &str) -> Option<&str> {
    name.strip_prefix("registry-")
}

/// The keys of the data of such a Secret.
pub mod secret_keys {
    /// The provider of the registry, in the cloud's words.
    pub const PROVIDER: &str = "provider";
    /// The address that the credentials are for, and no other.
    pub const SERVER_ADDRESS: &str = "serveraddress";
    /// The e-mail address of the account, or empty.
    pub const EMAIL: &str = "email";
    /// The credentials as a JSON object of texts, by the names that the provider requires.
    pub const CREDENTIALS: &str = "credentials.json";
}

/// Label of a pull secret, whose value is the id of its registry, and so its name. Source: the Containership cluster
/// manager.
pub const CONTROLLER_LABEL: &str = "controller";

/// Label of the objects of a plugin, whose value is the plugin's id.
pub const PLUGIN_LABEL: &str = "containership.io/plugin-id";

/// Annotation of a Plugin: its earlier specs, as a JSON list, newest last.
pub const PLUGIN_HISTORY_ANNOTATION: &str = "containership.io/plugin-history";

/// On a Plugin: the digest (SHA-256) of the signature that the cloud has for it, so that a corrected one is noticed.
pub const SIGNATURE_ANNOTATION: &str = "tidewaiter.dev/signature";

/// Annotation of an object in a plugin's manifests: `replace` deletes and creates the object when a field cannot be
/// changed.
pub const ON_IMMUTABLE_ANNOTATION: &str = "tidewaiter.dev/on-immutable";

/// Label of a namespace that wants neither pull secrets nor the service account of the coordinator.
pub const PULL_SECRETS_LABEL: &str = "tidewaiter.dev/pull-secrets";

/// Value of [`PULL_SECRETS_LABEL`].
pub const PULL_SECRETS_DISABLED: &str = "disabled";

/// Annotation of a service account: the pull secrets that the coordinator attached, separated by commas.
pub const ATTACHED_ANNOTATION: &str = "tidewaiter.dev/pull-secrets";

/// Annotation of a pull secret whose token expires: when.
pub const TOKEN_EXPIRES_ANNOTATION: &str = "tidewaiter.dev/token-expires";

/// Annotation of a pull secret whose token expires: when it is to be renewed.
pub const TOKEN_RENEWS_ANNOTATION: &str = "tidewaiter.dev/token-renews";

/// Annotation of a pull secret whose token expires: the digest of the credentials that it was made with.
pub const TOKEN_SOURCE_ANNOTATION: &str = "tidewaiter.dev/token-source";

/// The role labels that are removed from a proven Node when its group does not define them, no matter who set them.
///
/// Source: kops-controller removes exactly these three and leaves every other unknown label unchanged.
pub const EXCLUSIVE_ROLE_LABELS: [&str; 3] = [ROLE_API_SERVER_LABEL, ROLE_NODE_LABEL, ROLE_CONTROL_PLANE_LABEL];

/// The labels by which kOps places what it schedules on a split control plane. The node's own kops-channels sets them,
/// so they belong to no group and are never removed from a proven Node.
///
/// Source: `ClusterComponentLabel` in `pkg/nodelabels` of kOps.
pub const ROLE_COMPONENT_LABELS: [&str; 5] = [
    "node-role.kops.k8s.io/cloud-controller-manager",
    "node-role.kops.k8s.io/kops-channel",
    "node-role.kops.k8s.io/kops-controller",
    "node-role.kops.k8s.io/cert-manager",
    "node-role.kops.k8s.io/capi-manager",
];

/// Labels that kubelets and cloud controllers set on a Node from its properties, besides those under
/// [`OBSERVED_PREFIXES`].
///
/// Source: the kubelet's `pkg/kubelet/apis/well_known_labels.go`; Kubernetes' well-known labels; the AWS cloud
/// controller (`k8s.io/cloud-provider-aws`); the Hetzner CSI driver, whose topology the kubelet sets.
const OBSERVED_LABELS: [&str; 7] = [
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "node.kubernetes.io/instance-type",
    "node.kubernetes.io/windows-build",
    "k8s.io/cloud-provider-aws",
    "csi.hetzner.cloud/location",
];

/// Deprecated prefixes of such labels, prefixes of topology labels (`topology.kubernetes.io/`,
/// `topology.ebs.csi.aws.com/`, `topology.k8s.aws/`, …), and that of the Hetzner cloud controller.
const OBSERVED_PREFIXES: [&str; 4] = [
    "beta.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "topology.",
    "instance.hetzner.cloud/",
];

/// Labels of Nodes that the controller never writes, and prefixes of such labels: by them a kubelet names its machine,
/// or they are the coordinator's. The admission policy `tidewaiter-controller-nodes` has the same list.
const OF_OTHERS: [&str; 7] = [
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "kubernetes.io/arch",
    MANAGED_LABEL,
    "cluster.containership.io/",
    "nodepool.containership.io/",
    "tidewaiter.dev/",
];

/// Returns true if a label of a Node is one that the controller never writes, whatever a group defines.
#[must_use]
pub fn belongs_to_others(key: &str) -> bool {
    OF_OTHERS.iter().any(|other| {
        if other.ends_with('/') {
            key.starts_with(other)
        } else {
            key == *other
        }
    })
}

/// Returns true if a kubelet or a cloud controller sets this label from the properties of the Node. Most are set only
/// when the Node registers, so a label that is removed does not come back: Tidewaiter never removes one.
#[must_use]
pub fn is_observed(key: &str) -> bool {
    let prefixed = |prefix: &&str| key.contains('/') && key.starts_with(*prefix);
    OBSERVED_LABELS.contains(&key) || OBSERVED_PREFIXES.iter().any(prefixed)
}

/// Returns true if a label never belongs to an `InstanceGroup`, even if one defines it. It [`is_observed`],
/// [`belongs_to_others`], or excludes the Node from load balancers. The latter grants nothing: the kubelet may set it
/// (`NodeRestriction` permits it), administrators set it on workers, and its removal would send traffic to the Node.
#[must_use]
pub fn belongs_to_no_group(key: &str) -> bool {
    key == EXCLUDE_FROM_LOAD_BALANCERS_LABEL || belongs_to_others(key) || is_observed(key)
}

/// Effect of the taint with the key [`UNIDENTIFIED_TAINT`] that quarantine sets.
pub const UNIDENTIFIED_EFFECT: &str = "NoSchedule";

/// Taint key of a Node that has registered and is not yet identified. The patch that sets the labels removes the taint.
pub const UNIDENTIFIED_TAINT: &str = "tidewaiter.dev/unidentified";

/// The Lease of the controller. kops-controller uses the same Lease, so that only one of the two labels Nodes.
pub const KOPS_LEASE: &str = "kops-controller-leader";

/// Namespace of the kOps components.
pub const KOPS_NAMESPACE: &str = "kube-system";

/// Annotation of a Plugin: the digest of the diff that a person approves. The plugin controller removes it.
pub const APPROVE_ANNOTATION: &str = "tidewaiter.dev/approve";

/// Annotation of a Plugin: `REVISION@VERSION`, the revision to go back to, and the version of the cloud that is gone
/// back from. The plugin controller removes it when the cloud has another version.
pub const ROLLBACK_ANNOTATION: &str = "tidewaiter.dev/rollback";

/// Label of the Secrets in [`CONTAINERSHIP_NAMESPACE`] with the stored versions of a plugin, whose value is the
/// plugin's id.
pub const PLUGIN_STORE_LABEL: &str = "tidewaiter.dev/plugin-store";

/// Label of the Secrets in [`CONTAINERSHIP_NAMESPACE`] with the last list of the cloud, whose value is the kind in the
/// words of the metrics.
pub const CLOUD_LIST_LABEL: &str = "tidewaiter.dev/cloud-list";

/// Name of the Secret with the last list of a kind: the first one, or a further one if the list is too large for it.
#[must_use]
pub fn cloud_list_secret(kind: &str, number: usize) -> String {
    match number {
        0 => format!("tidewaiter-list-{kind}"),
        _ => format!("tidewaiter-list-{kind}-{number}"),
    }
}

/// The digits of a revision in the name of its Secret.
const REVISION_DIGITS: usize = 16;

/// Name of the Secret with a stored version of a plugin.
#[must_use]
pub fn plugin_release_secret(plugin: &str, revision: &str) -> String {
    let digits = revision.get(..REVISION_DIGITS).unwrap_or(revision);
    format!("{}{digits}", plugin_secret_prefix(plugin))
}

/// Name of the Secret with the diff of the version of a plugin that awaits approval.
#[must_use]
pub fn plugin_diff_secret(plugin: &str) -> String {
    format!("{}diff", plugin_secret_prefix(plugin))
}

/// The prefix of the names of a plugin's Secrets.
#[must_use]
pub fn plugin_secret_prefix(plugin: &str) -> String {
    format!("tidewaiter-plugin-{plugin}-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observed_labels_belong_to_no_group() {
        for key in [
            "kubernetes.io/os",
            "kubernetes.io/arch",
            "kubernetes.io/hostname",
            "beta.kubernetes.io/instance-type",
            "node.kubernetes.io/instance-type",
            "topology.kubernetes.io/zone",
            "topology.ebs.csi.aws.com/zone",
            "failure-domain.beta.kubernetes.io/region",
            "instance.hetzner.cloud/provided-by",
        ] {
            assert!(is_observed(key) && belongs_to_no_group(key), "{key}");
        }
        let excludes = EXCLUDE_FROM_LOAD_BALANCERS_LABEL;
        for key in [excludes, "cluster.containership.io/env", MANAGED_LABEL] {
            assert!(!is_observed(key) && belongs_to_no_group(key), "{key}");
        }
        for key in [
            "team",
            "topology.team",
            NODE_POOL_LABEL,
            "kubernetes.io/role",
            "node.kubernetes.io/mine",
            INSTANCE_GROUP_LABEL,
            ROLE_NODE_LABEL,
            KOPS_CONTROLLER_PKI_LABEL,
        ] {
            assert!(!belongs_to_no_group(key), "{key}");
        }
    }
}
