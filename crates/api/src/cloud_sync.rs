//! `CloudSync`: for each kind that the coordinator mirrors from the cloud, how far the mirror is, and what it does not
//! do and why.
//!
//! There is one object, named [`CLOUD_SYNC`]. It is cluster-scoped. Only the leader of the coordinator writes it, and
//! only when something changes. It has the status subresource, unlike `ClusterHealth`: a person who may annotate it, to
//! release what the brake holds, cannot forge its status, and `metadata.generation` does not change with the status, so
//! that `kubectl wait`, which compares it with a condition's `observedGeneration`, works.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use crate::condition::{Condition, TIMESTAMP_PATTERN};
use crate::schema::kubernetes_integer;

/// The name of the only `CloudSync`.
pub const CLOUD_SYNC: &str = "cloud";

/// Condition type: whether the last response of the cloud was applied, for every kind
/// (`kubectl wait --for=condition=Synced`).
pub const SYNCED: &str = "Synced";

/// Condition type: whether the brake holds deletions of any kind.
pub const HELD: &str = "Held";

/// Annotation of the `CloudSync` whose value is the revision for which the brake releases what it holds.
pub const RELEASE_ANNOTATION: &str = "tidewaiter.dev/release";

/// The entry of [`CloudSyncStatus::kinds`] for roles that are held as another coordinator left them. They are not
/// mirrored.
pub const CLUSTER_ROLE: &str = "ClusterRole";

/// The kind of held Nodes, which would lose the labels of their node pools.
pub const NODE: &str = "Node";

/// The reason of held deletions that no release lets pass: the cloud must list all ids first.
pub const UNREADABLE_LIST: &str =
    "the list contains an object without a valid id, which may be any of the missing ones";

/// Has no fields: the status follows from the cloud and the cluster alone.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "tidewaiter.dev",
    version = "v1alpha1",
    kind = "CloudSync",
    plural = "cloudsyncs",
    category = "tidewaiter",
    doc = "How far the mirror of the cloud is, for each kind, and what it does not do and why. Written by the leader of the coordinator.",
    status = "CloudSyncStatus",
    derive = "PartialEq",
    validation = Rule::new("self.metadata.name == 'cloud'").message("the only CloudSync is named cloud"),
    printcolumn(
        name = "Synced",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].status",
        description = "Whether the last response of the cloud was applied, for every kind"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].reason",
        description = "The reason for it"
    ),
    printcolumn(
        name = "Held",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Held\")].status",
        description = "Whether the brake holds deletions"
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.conditions[?(@.type==\"Synced\")].lastTransitionTime",
        description = "The time of the last change of Synced"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Synced\")].message",
        description = "Details",
        priority = 1
    ),
    printcolumn(
        name = "Holds",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Held\")].message",
        description = "What the brake holds",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct CloudSyncSpec {}

/// The progress of the mirror.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = RecursiveTransform(kubernetes_integer))]
pub struct CloudSyncStatus {
    /// The id of this cluster in the cloud. Agents compare it with that which is pinned on their hosts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 64))]
    pub cluster_id: String,
    /// The mirrored kinds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["kind"]))]
    pub kinds: Vec<KindSync>,
    /// The conditions `Synced` and `Held`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The progress of the mirror of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "How far the mirror of one kind is.")]
pub struct KindSync {
    /// The kind, for example `Registry`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// When a response of the cloud was last applied (UTC, whole seconds), as of the last write of this status. A
    /// success that changes nothing else is written once an hour, so use the metric to see how old the state is. Absent
    /// before the first success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub last_success: Option<Timestamp>,
    /// The revision of the cloud's last complete list: 12 characters that change with its `ETag` and with the names in
    /// it. Empty before the first one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub revision: String,
    /// The number of objects of this kind in the cluster that the mirror manages.
    #[serde(default)]
    pub objects: u32,
    /// The deletions and additions that the brake holds. Absent when it holds none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldDeletions>,
    /// The number of objects that were refused.
    #[serde(default)]
    pub refused_objects: u32,
    /// The first objects that were refused: each keeps its last state in the cluster.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub refused: Vec<RefusedObject>,
}

/// Deletions and additions that the brake holds until the next response confirms them, or until they are released.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(
    description = "Deletions and additions that the brake holds. They are released by the annotation tidewaiter.dev/release with this revision."
)]
pub struct HeldDeletions {
    /// The revision of the list that would delete or add the objects. A release names it.
    #[schemars(length(max = 256))]
    pub revision: String,
    /// When the brake began to hold (UTC, whole seconds).
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub since: Timestamp,
    /// The number of objects that would be deleted, or of roles that would lose rules.
    pub objects: u32,
    /// The number of objects that would be added: created, or changed so that they give another permission.
    #[serde(default)]
    pub additions: u32,
    /// The names of the first objects that would be deleted or added.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub names: Vec<String>,
    /// The reason why the brake holds, in plain words.
    #[schemars(length(max = 1024))]
    pub reason: String,
}

/// An object of the cloud that was not applied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "An object of the cloud that was not applied.")]
pub struct RefusedObject {
    /// The name that it would have in the cluster, or `not readable` if its id is not.
    #[schemars(length(max = 253))]
    pub id: String,
    /// The reason why it was refused, in plain words, without a secret.
    #[schemars(length(max = 1024))]
    pub reason: String,
}

impl CloudSync {
    /// The condition of this type, if there is one.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_)
    }
}
