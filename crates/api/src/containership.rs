//! The kinds of the Containership cluster manager, which the coordinator mirrors from the cloud: names and fields as
//! its Go coordinator wrote them (its newest state, September 2019), and the two kinds of Cerebral, its autoscaler.
//!
//! - An object that the Go coordinator wrote can be decoded, and each of its fields is written back with its value. An
//!   empty list or map, which Go writes as `null`, is written as empty. A field that Go always writes is always
//!   written, also when it is empty.
//! - The schemas refuse only values that would do harm: on a node, in a path, in a label. The same object is harmless
//!   as long as it is stored, because the API server checks writes only; so each reader must parse a text before it
//!   uses it.
//! - Unknown fields are preserved by the API server. The types here ignore them, so write these objects with
//!   server-side apply, never with PUT.
//! - The resources lie in the namespace `containership-core`, except those of Cerebral, which are cluster-scoped.
//!   Unless a kind says otherwise, `metadata.name` is `spec.id`.
//! - The default printer columns are name and age, as they were; `kubectl get -o wide` shows more.

mod authorization_role;
mod authorization_role_binding;
mod autoscaling_group;
mod autoscaling_policy;
mod cluster_label;
pub mod cluster_upgrade;
mod max_unavailable;
mod node_pool_label;
pub mod plugin;
mod registry;
mod user;

pub use authorization_role::{AuthorizationRole, AuthorizationRoleSpec, AuthorizationRule, RuleType};
pub use authorization_role_binding::{AuthorizationRoleBinding, AuthorizationRoleBindingSpec, BindingType};
pub use autoscaling_group::{AutoscalingGroup, AutoscalingGroupSpec, AutoscalingGroupStatus, ScalingStrategy};
pub use autoscaling_policy::{
    AdjustmentType, AutoscalingPolicy, AutoscalingPolicySpec, ComparisonOperator, ScalingPolicy, ScalingStep,
};
pub use cluster_label::{ClusterLabel, ClusterLabelSpec};
pub use cluster_upgrade::{
    ClusterUpgrade, ClusterUpgradeSpec, ClusterUpgradeStatus, Cordon, Day, MaintenanceWindow, NodeSelector,
    OnDrainTimeout, SelectorOperator, Start, UpgradePolicy, UpgradeProgress, UpgradeStatus, UpgradeType,
};
pub use max_unavailable::MaxUnavailable;
pub use node_pool_label::{NodePoolLabel, NodePoolLabelSpec};
pub use plugin::{PendingVersion, Plugin, PluginSpec, PluginStatus};
pub use registry::{AuthToken, Registry, RegistrySpec};
pub use user::{SshKey, User, UserSpec};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

use crate::schema::{atomic, replacing};

/// The maximum length of an id: that of an object's name.
const MAX_ID: usize = 253;

/// A DNS label, such as the name of a namespace, or nothing.
const NAMESPACE_OR_EMPTY: &str = "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$";

/// The definitions of all these kinds.
pub(crate) fn crds() -> Vec<CustomResourceDefinition> {
    [
        atomic(User::crd()),
        atomic(Registry::crd()),
        atomic(Plugin::crd()),
        atomic(ClusterLabel::crd()),
        atomic(NodePoolLabel::crd()),
        // The upgrade controller writes a part of its spec.
        ClusterUpgrade::crd(),
        atomic(AuthorizationRole::crd()),
        atomic(AuthorizationRoleBinding::crd()),
        atomic(AutoscalingGroup::crd()),
        atomic(AutoscalingPolicy::crd()),
    ]
    .map(replacing)
    .into()
}
