//! `PluginInventory`: what the plugin controller applied for a plugin of the cloud, so that it can be removed again.
//!
//! It has the name and the namespace of its `Plugin`, and no owner reference: a `Plugin` that somebody deletes in the
//! cluster must not take the memory of its objects with it. Only the leader of the coordinator writes it. It holds
//! digests, no content. It has no status subresource, because one write updates everything.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::TIMESTAMP_PATTERN;
use crate::containership::PluginSpec;

/// The objects that were applied for a plugin.
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
    /// When the manifests that were accepted last were signed, in seconds since 1970: none that were signed before are
    /// accepted. Absent without a signature.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<i64>,
    /// The plugin as it was when its version was applied last, to its end. Absent before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied: Option<PluginSpec>,
    /// The digest of the manifests of that version.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub revision: String,
    /// The revision that may be applied: `pluginApproval` was automatic when its apply began, or a person approved it,
    /// or went back to it. It is here before anything of it is applied.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub approved: String,
    /// The versions that were accepted, newest last. Each is stored in the Secret `tidewaiter-plugin-ID-REVISION`, with
    /// the first 16 digits of the revision.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub releases: Vec<AcceptedRelease>,
    /// The plugin as it was before, newest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<PluginSpec>,
    /// The names of the jobs of the version that is being applied, or was applied last, that have succeeded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub completed_jobs: Vec<String>,
    /// The objects, jobs included, by kind, namespace and position. An object is here before it is created, and until
    /// it is gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 4096))]
    pub kinds: Vec<AppliedKind>,
}

impl PluginInventorySpec {
    /// Every object, with its kind.
    pub fn objects(&self) -> impl Iterator<Item = (&AppliedKind, &AppliedObject)> {
        let kinds = self.kinds.iter();
        kinds.flat_map(|kind| kind.objects.iter().map(move |object| (kind, object)))
    }
}

/// A version that was accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "A version that was accepted.")]
pub struct AcceptedRelease {
    /// The version.
    #[schemars(length(max = 253))]
    pub version: String,
    /// The digest of its manifests.
    #[schemars(length(max = 64))]
    pub revision: String,
    /// The type of the plugin then.
    #[serde(rename = "type")]
    #[schemars(length(max = 253))]
    pub type_: String,
    /// The implementation of the plugin then.
    #[schemars(length(max = 253))]
    pub implementation: String,
    /// When it was accepted (UTC).
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub at: Timestamp,
    /// True if it is too large for a Secret, so that nobody can go back to it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub too_large: bool,
}

/// Objects of one kind in one namespace that were applied, or are about to be. What they have in common is here once,
/// because the API server checks each field: 500 objects with all of theirs took it three times as long.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "Objects of one kind in one namespace that were applied, or are about to be.")]
pub struct AppliedKind {
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
    /// The namespace, empty for cluster-scoped objects.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub namespace: String,
    /// The place in the order in which the version applies them: absent for what comes before the groups, the number of
    /// their group from 1, and one more for the jobs after the groups. They are removed in the opposite order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub position: Option<i64>,
    /// The objects.
    #[schemars(length(max = 4096))]
    pub objects: Vec<AppliedObject>,
}

/// An object that was applied, or is about to be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "An object that was applied, or is about to be.")]
pub struct AppliedObject {
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
