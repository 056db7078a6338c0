//! `Plugin`: a component of the cluster that the cloud provides, such as metrics or autoscaling.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::MAX_ID;

/// A plugin, as the cloud lists those of the cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "containership.io",
    version = "v3",
    kind = "Plugin",
    plural = "plugins",
    shortname = "plgn",
    namespaced,
    doc = "A component of the cluster that the cloud provides. Mirrored from the cloud by the coordinator.",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    validation = Rule::new("self.metadata.name == self.spec.id").message("metadata.name must be spec.id"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type", description = "The type of the plugin", priority = 1),
    printcolumn(name = "Implementation", type_ = "string", json_path = ".spec.implementation", description = "The implementation", priority = 1),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version", description = "The version of the implementation", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct PluginSpec {
    /// The id of the plugin in the cloud, a UUID.
    #[schemars(length(max = MAX_ID))]
    pub id: String,
    /// When the plugin was added to the cluster, as the cloud writes it.
    #[serde(default)]
    pub added_at: String,
    /// What the plugin is for, for people.
    #[serde(default)]
    pub description: String,
    /// The type, for example `metrics`, `logs` or `autoscaler`.
    #[serde(default, rename = "type")]
    pub type_: String,
    /// The version of the implementation, for example `1.0.0`.
    #[serde(default)]
    pub version: String,
    /// The implementation, for example `prometheus`.
    #[serde(default)]
    pub implementation: String,
}
