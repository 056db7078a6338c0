//! The kinds that are mirrored, one file each: where the cloud lists them, and what they become. Fields and names are
//! those that the Go coordinator wrote; a value that the cloud does not have is empty.

mod autoscaling_group;
mod autoscaling_policy;
mod cluster_label;
mod node_pool_label;
mod plugin;
mod registry;
mod registry_credentials;
mod role;
mod role_binding;
mod upgrade;
mod user;

pub(crate) use autoscaling_group::AutoscalingGroups;
pub(crate) use autoscaling_policy::AutoscalingPolicies;
pub(crate) use cluster_label::ClusterLabels;
pub(crate) use node_pool_label::NodePoolLabels;
pub(crate) use plugin::Plugins;
pub(crate) use registry::Registries;
pub use registry::RegistryCredentialsIn;
pub(crate) use registry_credentials::RegistryCredentials;
pub(crate) use role::Roles;
pub(crate) use role_binding::RoleBindings;
pub(crate) use upgrade::{Upgrades, is_of_cloud};
pub(crate) use user::Users;

/// The text of a value that the cloud may not have.
fn or_empty(value: Option<impl ToString>) -> String {
    value.map(|value| value.to_string()).unwrap_or_default()
}
