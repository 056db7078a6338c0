//! `ClusterHealth`: the health of the cluster, as a condition that users and other controllers can wait for.
//!
//! There is one object. It is cluster-scoped and has the name of the cluster. Only the leader writes it, and only when
//! its content changes. It has no status subresource, because one write updates everything.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use schemars::transform::RecursiveTransform;
use serde::{Deserialize, Serialize};

use crate::condition::{Condition, TIMESTAMP_PATTERN};
use crate::schema::{kubernetes_integer, without_status_subresource};

/// Condition type: whether the cluster is healthy (`kubectl wait --for=condition=Healthy`).
pub const HEALTHY: &str = "Healthy";

/// Has no fields: the status follows from the cluster alone.
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
        description = "The reason for it"
    ),
    printcolumn(
        name = "Failures",
        type_ = "integer",
        json_path = ".status.failures",
        description = "The number of failures"
    ),
    printcolumn(
        name = "Since",
        type_ = "date",
        json_path = ".status.conditions[?(@.type==\"Healthy\")].lastTransitionTime",
        description = "The time of the last change of Healthy"
    ),
    printcolumn(
        name = "Message",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Healthy\")].message",
        description = "The first failures",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterHealthSpec {}

/// The result of the last validation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(transform = RecursiveTransform(kubernetes_integer))]
pub struct ClusterHealthStatus {
    /// When this status was first observed (UTC, whole seconds). It does not change while the rest of the status stays
    /// the same.
    #[schemars(with = "String", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub observed_at: Timestamp,
    /// The number of failures.
    pub failures: u32,
    /// The numbers of Nodes and pods by state.
    #[serde(default)]
    pub counts: HealthCounts,
    /// The condition `Healthy`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// The numbers of Nodes and pods by state. A number that is not known is absent. The gauges `kops_*` have the same
/// values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthCounts {
    /// The cluster's Nodes that are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_ready: Option<u32>,
    /// The cluster's Nodes that are not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_not_ready: Option<u32>,
    /// Pods that are required on a ready control-plane node and are missing there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_missing: Option<u32>,
    /// System pods with a container that is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_not_ready: Option<u32>,
    /// System pods in phase Pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_pending: Option<u32>,
    /// System pods in phase Unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pods_unknown: Option<u32>,
}

/// The definition, without the status subresource that the derive adds for every type with a status.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    without_status_subresource(ClusterHealth::crd())
}
