//! `ClusterHealth`: the verdict on the cluster, as a condition that people and other controllers can wait for.
//!
//! There is one, cluster-scoped, under the cluster's name. The leader alone writes it, all of it at once, so it has no status
//! subresource; and only when it says something else than before.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Type of the condition that says whether the cluster is healthy: `kubectl wait --for=condition=Healthy`.
pub const HEALTHY: &str = "Healthy";

/// Nothing is asked of it: what it says follows from the cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "tidewaiter.dev",
    version = "v1alpha1",
    kind = "ClusterHealth",
    plural = "clusterhealths",
    category = "tidewaiter",
    doc = "Whether the cluster is healthy, by the rules of `kops validate cluster`. Written by the leader of the controller.",
    status = "ClusterHealthStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Healthy",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Healthy\")].status",
        description = "Whether the cluster is healthy"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Healthy\")].reason",
        description = "Why"
    ),
    printcolumn(
        name = "Failures",
        type_ = "integer",
        json_path = ".status.failures",
        description = "How much is wrong"
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.conditions[?(@.type==\"Healthy\")].lastTransitionTime",
        description = "Since when it is so"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Healthy\")].message",
        description = "The first failures in words",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHealthSpec {}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHealthStatus {
    /// When that which is said here was first observed (UTC, whole seconds). As long as nothing else is observed, nothing is
    /// written, and this stays.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub observed_at: Timestamp,
    /// How much is wrong.
    pub failures: u32,
    /// How many there are of what.
    #[serde(default)]
    pub counts: HealthCounts,
    /// `Healthy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// How many there are of what; absent where it could not be known. The gauges `kops_*` say the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCounts {
    /// Nodes of the cluster's instances that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_ready: Option<u32>,
    /// Nodes of the cluster's instances that are not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_not_ready: Option<u32>,
    /// Pods that a ready control-plane node should run and does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_missing: Option<u32>,
    /// Pods of the system with a container that is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_not_ready: Option<u32>,
    /// Pods of the system that are pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_pending: Option<u32>,
    /// Pods of the system in unknown phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_unknown: Option<u32>,
}

/// The definition, without the status subresource that the derive adds for every type with a status: who writes it writes all
/// of it at once.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    crate::without_status_subresource(ClusterHealth::crd())
}
