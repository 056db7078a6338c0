//! `Plugin`: a component of the cluster that the cloud provides, such as metrics or autoscaling.
//!
//! The mirror writes the spec, and the plugin controller the status, through the status subresource:
//! `metadata.generation`, which the conditions name, changes with the spec alone.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use super::MAX_ID;
use crate::condition::Condition;
use crate::schema::{kubernetes_integer, null_is_empty};

/// Condition type: whether the current version is applied and healthy (`kubectl wait --for=condition=Ready`).
pub const READY: &str = "Ready";

/// Condition type: whether everything that was applied is healthy.
pub const HEALTHY: &str = "Healthy";

/// Condition type: whether the plugin is being applied, or waits for its objects.
pub const RECONCILING: &str = "Reconciling";

/// Condition type: whether the plugin cannot be applied until something changes.
pub const STALLED: &str = "Stalled";

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
    status = "PluginStatus",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    validation = Rule::new("self.metadata.name == self.spec.id").message("metadata.name must be spec.id"),
    printcolumn(name = "Type", type_ = "string", json_path = ".spec.type", description = "The type of the plugin", priority = 1),
    printcolumn(name = "Implementation", type_ = "string", json_path = ".spec.implementation", description = "The implementation", priority = 1),
    printcolumn(name = "Version", type_ = "string", json_path = ".spec.version", description = "The version of the implementation", priority = 1),
    printcolumn(name = "Ready", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].status", description = "Whether the version is applied and healthy", priority = 1),
    printcolumn(name = "Reason", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].reason", description = "The reason for it", priority = 1),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.conditions[?(@.type==\"Ready\")].message", description = "Details", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct PluginSpec {
    /// The id of the plugin in the cloud, a UUID.
    #[schemars(length(max = MAX_ID))]
    pub id: String,
    /// When the plugin was added to the cluster, as the cloud writes it.
    #[serde(default)]
    pub added_at: String,
    /// The purpose of the plugin, for people.
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

/// The progress of the plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = RecursiveTransform(kubernetes_integer))]
pub struct PluginStatus {
    /// The version that was applied last, to its end. Empty before the first one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub applied_version: String,
    /// The digest of the manifests of that version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub revision: String,
    /// The number of objects of the plugin, jobs included.
    #[serde(default)]
    pub objects: u32,
    /// The number of them that are not healthy.
    #[serde(default)]
    pub unhealthy: u32,
    /// The number of objects that somebody changed and that are left so, with `pluginDrift: report`.
    #[serde(default)]
    pub drifted: u32,
    /// The version that awaits approval. Absent if none does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingVersion>,
    /// The conditions `Ready`, `Healthy`, `Reconciling` and `Stalled`.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A version that awaits approval. What it would change is in the Secret `tidewaiter-plugin-ID-diff`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    description = "A version that awaits approval. What it would change is in the Secret tidewaiter-plugin-ID-diff."
)]
pub struct PendingVersion {
    /// The version.
    #[schemars(length(max = 253))]
    pub version: String,
    /// The digest of its manifests.
    #[schemars(length(max = 64))]
    pub revision: String,
    /// The digest of the manifests and of what they would change, which an approval names.
    #[schemars(length(max = 64))]
    pub digest: String,
    /// The number of objects that would be created.
    #[serde(default)]
    pub creates: u32,
    /// The number of objects that would be changed.
    #[serde(default)]
    pub changes: u32,
    /// The number of objects that would be deleted.
    #[serde(default)]
    pub deletes: u32,
    /// The number of jobs that would run.
    #[serde(default)]
    pub jobs: u32,
}
