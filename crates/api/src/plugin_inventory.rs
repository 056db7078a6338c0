//! `PluginInventory`: what the plugin controller applied for a plugin of the cloud, so that it can be removed again.
//!
//! It has the name and the namespace of its `Plugin`, and no owner reference: a `Plugin` that somebody deletes in the cluster must not take the
//! memory of its objects with it. Only the leader of the coordinator writes it. It holds digests, no content. It has no status subresource,
//! because one write updates everything.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::containership::PluginSpec;

/// What was applied for a plugin.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "tidewaiter.dev",
    version = "v1alpha1",
    kind = "PluginInventory",
    plural = "plugininventories",
    category = "tidewaiter",
    namespaced,
    doc = "What the coordinator applied for a plugin of the cloud, so that it can be removed again. Written by the leader of the coordinator.",
    derive = "Default",
    derive = "PartialEq",
    printcolumn(
        name = "Version",
        type_ = "string",
        json_path = ".spec.applied.version",
        description = "The version that was applied last"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct PluginInventorySpec {
    /// The type of the plugin: with the implementation, it decides as which service account it is removed.
    #[serde(default, rename = "type", skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub type_: String,
    /// The implementation of the plugin.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub implementation: String,
    /// The plugins that it depends on: they are removed after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub depends_on: Vec<String>,
    /// When the manifests that were accepted last were signed, in seconds since 1970: none that were signed before are accepted. Absent
    /// without a signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<i64>,
    /// The plugin as it was when its version was applied last, to its end. Absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<PluginSpec>,
    /// The digest of the manifests of that version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub revision: String,
    /// The plugin as it was before, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<PluginSpec>,
    /// The names of the jobs of the version that is being applied, or was applied last, that have succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub completed_jobs: Vec<String>,
    /// The objects, jobs included. An object is here before it is created, and until it is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub objects: Vec<AppliedObject>,
}

/// An object that was applied, or is about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "An object that was applied, or is about to be.")]
pub struct AppliedObject {
    /// The API group, empty for the core group.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 253))]
    pub group: String,
    /// The version of the group.
    #[schemars(length(max = 63))]
    pub version: String,
    /// The kind.
    #[schemars(length(max = 63))]
    pub kind: String,
    /// The namespace, empty for a cluster-scoped object.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The name.
    #[schemars(length(max = 253))]
    pub name: String,
    /// The digest of what was applied; empty before that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub digest: String,
    /// The digest of the fields that were the controller's after that.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub fields: String,
}
