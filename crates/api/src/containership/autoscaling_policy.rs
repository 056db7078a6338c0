//! `AutoscalingPolicy` of Cerebral: the metric that decides when an `AutoscalingGroup` is scaled.
//!
//! The name of a mirrored policy is its id in the cloud. People may create others.
//!
//! Source: Cerebral's documentation of its custom resources and its definition.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use std::collections::BTreeMap;

use kube::{CustomResource, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::schema::null_is_empty;

/// The metric, and what follows from it.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "cerebral.containership.io",
    version = "v1alpha1",
    kind = "AutoscalingPolicy",
    plural = "autoscalingpolicies",
    shortname = "asp",
    doc = "When Cerebral scales the groups that name this policy. Mirrored from the cloud by the coordinator.",
    derive = "PartialEq",
    printcolumn(
        name = "Backend",
        type_ = "string",
        json_path = ".spec.metricsBackend",
        description = "The MetricsBackend",
        priority = 1
    ),
    printcolumn(
        name = "Metric",
        type_ = "string",
        json_path = ".spec.metric",
        description = "The metric",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalingPolicySpec {
    /// The name of the `MetricsBackend` that is asked for the metric.
    pub metrics_backend: String,
    /// The metric, for example `cpu_percent_utilization`.
    pub metric: String,
    /// Settings of the metric, which depend on the backend.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub metric_configuration: BTreeMap<String, String>,
    /// The seconds between two requests for the metric.
    #[schemars(range(min = 0))]
    pub poll_interval: i64,
    /// For how many seconds a threshold must be crossed before the group is scaled.
    #[schemars(range(min = 0))]
    pub sample_period: i64,
    /// The actions when a threshold is crossed.
    pub scaling_policy: ScalingPolicy,
}

/// The actions when a threshold is crossed. A step that is absent never happens.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScalingPolicy {
    /// When nodes are added, and how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_up: Option<ScalingStep>,
    /// When nodes are removed, and how many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_down: Option<ScalingStep>,
}

/// A threshold of the metric, and the number of nodes to add or to remove.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "A threshold of the metric, and the number of nodes to add or to remove.")]
pub struct ScalingStep {
    /// The value that the metric is compared with.
    #[serde(serialize_with = "shortest")]
    pub threshold: f64,
    /// The number of nodes that are added or removed, in the unit of `adjustmentType`.
    #[serde(serialize_with = "shortest")]
    #[schemars(range(min = 0))]
    pub adjustment_value: f64,
    /// The comparison of the metric, on the left, with the threshold.
    pub comparison_operator: ComparisonOperator,
    /// The unit of `adjustmentValue`.
    pub adjustment_type: AdjustmentType,
}

/// The comparison of the metric with the threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "How the metric, on the left, is compared with the threshold.")]
pub enum ComparisonOperator {
    /// The metric is greater.
    #[serde(rename = ">")]
    Greater,
    /// The metric is less.
    #[serde(rename = "<")]
    Less,
    /// The metric is greater or equal.
    #[serde(rename = ">=")]
    GreaterOrEqual,
    /// The metric is less or equal.
    #[serde(rename = "<=")]
    LessOrEqual,
    /// The metric is equal.
    #[serde(rename = "==")]
    Equal,
    /// The metric is not equal.
    #[serde(rename = "!=")]
    NotEqual,
}

/// The unit of an adjustment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(description = "The unit of adjustmentValue: nodes, or percent of the nodes of the group, rounded up.")]
#[serde(rename_all = "lowercase")]
pub enum AdjustmentType {
    /// Nodes.
    Absolute,
    /// Percent of the nodes of the group, rounded up.
    Percent,
}

/// Writes `1` and not `1.0`, as Go and the API server do, so that a number that did not change is not a difference.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn shortest<S: Serializer>(number: &f64, serializer: S) -> Result<S::Ok, S::Error> {
    /// Every integer up to here is a float.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "an integer in range")]
        return serializer.serialize_i64(*number as i64);
    }
    serializer.serialize_f64(*number)
}
