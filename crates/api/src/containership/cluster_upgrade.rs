//! `ClusterUpgrade`: an upgrade of Kubernetes on the nodes, one node after the other.
//!
//! Its progress is in `spec.status`, so that a coordinator that restarts continues where it was. The object must have
//! the label `containership.io/managed=true`; without it, the upgrade does not begin. A person may create one, with any
//! name.
//!
//! `status`, which the Go coordinator did not have, says in words how it goes. Nothing decides by it.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

mod policy;

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use crate::condition::{Condition, TIMESTAMP_PATTERN};
use crate::schema::{kubernetes_integer, null_is_empty};
use crate::values::{LabelKey, LabelValue};
pub use policy::{Day, MaintenanceWindow, OnDrainTimeout, UpgradePolicy};

/// Condition type: whether the upgrade goes on, and what it waits for.
pub const PROGRESSING: &str = "Progressing";

/// Condition type: whether the upgrade has succeeded (`kubectl wait --for=condition=Succeeded`). Unknown until it is
/// over.
pub const SUCCEEDED: &str = "Succeeded";

/// An upgrade, and its progress.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "provision.containership.io",
    version = "v3",
    kind = "ClusterUpgrade",
    plural = "clusterupgrades",
    shortname = "cup",
    namespaced,
    doc = "An upgrade of Kubernetes on the nodes of the cluster, one node after the other. Its progress is in spec.status.",
    status = "ClusterUpgradeStatus",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    printcolumn(
        name = "Target",
        type_ = "string",
        json_path = ".spec.targetVersion",
        description = "The version to upgrade to",
        priority = 1
    ),
    printcolumn(
        name = "Status",
        type_ = "string",
        json_path = ".spec.status.clusterStatus",
        description = "The progress of the cluster",
        priority = 1
    ),
    printcolumn(
        name = "Node",
        type_ = "string",
        json_path = ".spec.status.currentNode",
        description = "The node that is upgraded now",
        priority = 1
    ),
    printcolumn(
        name = "Done",
        type_ = "integer",
        json_path = ".status.done",
        description = "How many of its nodes are at the version",
        priority = 1
    ),
    printcolumn(
        name = "Nodes",
        type_ = "integer",
        json_path = ".status.nodes",
        description = "How many nodes it has",
        priority = 1
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Progressing\")].message",
        description = "What the upgrade waits for, or why it failed",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new(
    "!has(oldSelf.status) || !has(oldSelf.status.clusterStatus) || oldSelf.status.clusterStatus == '' || (self.type == oldSelf.type && self.targetVersion == oldSelf.targetVersion)"
).message("type and targetVersion of an upgrade that has begun cannot change; create another upgrade"))]
pub struct ClusterUpgradeSpec {
    /// The id of the upgrade in the cloud, a UUID. It becomes part of the name of a file on each node, so it has no
    /// `/`.
    #[serde(default)]
    #[schemars(regex(pattern = "^[-A-Za-z0-9._]{0,253}$"))]
    pub id: String,
    /// The component that is upgraded.
    #[serde(rename = "type")]
    pub type_: UpgradeType,
    /// When the upgrade was requested, as Unix seconds in a text.
    #[serde(default)]
    pub added_at: String,
    /// The purpose of the upgrade, for people.
    #[serde(default)]
    pub description: String,
    /// The version to upgrade to, for example `v1.12.3`. It becomes part of the name of a file on each node.
    #[schemars(
        length(max = 64),
        regex(pattern = r"^v(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)\.(0|[1-9][0-9]*)(-[-0-9A-Za-z.]+)?(\+[-0-9A-Za-z.]+)?$")
    )]
    pub target_version: String,
    /// The nodes to upgrade. A node must match all of them; an empty list matches all nodes.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub label_selector: Vec<NodeSelector>,
    /// For how many seconds one node may be upgraded before it counts as failed: a day at most.
    #[serde(default)]
    #[schemars(range(min = 0, max = 86_400))]
    pub node_timeout_seconds: i64,
    /// The settings that the operator adds to the behaviour of the Go coordinator. Of an upgrade of the cloud, the
    /// mirror writes what the cloud sets; the other fields are the cluster's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<UpgradePolicy>,
    /// The progress. The cloud never writes it. Absent before the upgrade begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<UpgradeProgress>,
}

/// The progress of the upgrade, in words and numbers. Written by the coordinator alone. The numbers are absent while
/// the coordinator has not decided about the upgrade, where its spec cannot be read, and of upgrades that ended before
/// there were numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(transform = RecursiveTransform(kubernetes_integer))]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeStatus {
    /// The number of its nodes: those that it has started, and those that it selects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<u32>,
    /// The number of them that are at the version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u32>,
    /// The number of them that have failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<u32>,
    /// The conditions `Progressing` and `Succeeded`.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The component that an upgrade upgrades.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "What is upgraded. etcd has a name, but was never supported.")]
#[serde(rename_all = "lowercase")]
pub enum UpgradeType {
    /// Kubernetes: the kubelet, and on the control plane its components.
    Kubernetes,
    /// etcd. It has a name, but was never supported.
    Etcd,
}

/// A requirement for the labels of a node.
///
/// Source: `labels.NewRequirement` of `k8s.io/apimachinery`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "A requirement for the labels of a node.")]
pub struct NodeSelector {
    /// The key of the label.
    pub label: LabelKey,
    /// The comparison of the label.
    pub operator: SelectorOperator,
    /// The values to compare with. Their number depends on the operator.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub value: Vec<LabelValue>,
}

/// The operator of a requirement.
///
/// Source: `selection.Operator` of `k8s.io/apimachinery`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "How the label is compared.")]
pub enum SelectorOperator {
    /// The label is not there. No value.
    #[serde(rename = "!")]
    DoesNotExist,
    /// The label has the value. One value.
    #[serde(rename = "=")]
    Equals,
    /// The label has the value. One value.
    #[serde(rename = "==")]
    DoubleEquals,
    /// The label has one of the values.
    #[serde(rename = "in")]
    In,
    /// The label does not have the value. One value.
    #[serde(rename = "!=")]
    NotEquals,
    /// The label has none of the values.
    #[serde(rename = "notin")]
    NotIn,
    /// The label is there. No value.
    #[serde(rename = "exists")]
    Exists,
    /// The label is a greater integer. One value.
    #[serde(rename = "gt")]
    GreaterThan,
    /// The label is a smaller integer. One value.
    #[serde(rename = "lt")]
    LessThan,
}

/// The progress of an upgrade, written by the coordinator alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UpgradeProgress {
    /// The progress of the whole upgrade.
    #[serde(default)]
    pub cluster_status: UpgradeStatus,
    /// The progress of each node, by the name of the node.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub node_statuses: BTreeMap<String, UpgradeStatus>,
    /// The name of the node that is upgraded now, or empty.
    #[serde(default)]
    #[schemars(length(max = 253), regex(pattern = "^[-a-z0-9.]*$"))]
    pub current_node: String,
    /// When the upgrade of the current node began, for example `Sun Nov 22 05:29:17 UTC 2026` (Go's `time.UnixDate`),
    /// or empty.
    #[serde(default)]
    pub current_start_time: String,
    /// The other nodes that are upgraded now, and since when. Empty while one node is upgraded at a time.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub starts: BTreeMap<String, Start>,
    /// The nodes in progress whose script has succeeded and that are at the version and Ready, and since when. They are
    /// done after `minReadySeconds`.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub verifying: BTreeMap<String, Start>,
    /// The nodes that were done and are not at the version or not Ready any more, and since when. They have failed
    /// after `minReadySeconds`.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub fallen_back: BTreeMap<String, Start>,
    /// The nodes in progress that were started before the signature of their script counts, and when they were started
    /// first. Each has its time from when on the signature counts.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub postponed: BTreeMap<String, Start>,
    /// Since when the cluster has been healthy after the canaries (UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub soaking_since: Option<Timestamp>,
    /// The nodes that the upgrade takes out of service, by the name of the node: written before the node is cordoned,
    /// and removed after it is uncordoned.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub cordons: BTreeMap<String, Cordon>,
}

/// The beginning of something that lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "The beginning of something that lasts.")]
pub struct Start {
    /// Since when (UTC).
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub since: Timestamp,
}

/// That a node is out of service for an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "That a node is out of service for the upgrade.")]
#[serde(rename_all = "camelCase")]
pub struct Cordon {
    /// When its drain began (UTC).
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub since: Timestamp,
    /// True if somebody else had cordoned it before. Then it stays cordoned.
    #[serde(default)]
    pub before: bool,
}

/// The state of an upgrade.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "How far the upgrade is; empty before it begins.")]
pub enum UpgradeStatus {
    /// It has not begun. Written as an empty text.
    #[default]
    #[serde(rename = "")]
    NotStarted,
    /// It goes on.
    InProgress,
    /// It is done.
    Success,
    /// It failed; for the cluster: at least one node failed.
    Failed,
}
