//! `AutoscalingGroup` of Cerebral: the nodes that it scales together. The coordinator writes one for each node pool
//! with autoscaling.
//!
//! The name of a mirrored group is the id of its node pool. People may create others. Cerebral writes the status,
//! through the status subresource, as in its own definition.
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
use serde::{Deserialize, Serialize};

use crate::schema::null_is_empty;

/// The number of nodes that a group may have, and what decides.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "cerebral.containership.io",
    version = "v1alpha1",
    kind = "AutoscalingGroup",
    plural = "autoscalinggroups",
    shortname = "asg",
    doc = "A group of nodes that Cerebral scales together. Mirrored from the cloud by the coordinator, one for each node pool with autoscaling.",
    status = "AutoscalingGroupStatus",
    derive = "PartialEq",
    printcolumn(
        name = "Min",
        type_ = "integer",
        json_path = ".spec.minNodes",
        description = "The minimum number of nodes",
        priority = 1
    ),
    printcolumn(
        name = "Max",
        type_ = "integer",
        json_path = ".spec.maxNodes",
        description = "The maximum number of nodes",
        priority = 1
    ),
    printcolumn(
        name = "Suspended",
        type_ = "boolean",
        json_path = ".spec.suspended",
        description = "Whether scaling is suspended",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("self.minNodes <= self.maxNodes").message("minNodes must not be greater than maxNodes"))]
pub struct AutoscalingGroupSpec {
    /// The labels of the group's nodes; for a node pool `containership.io/node-pool-id`. No node may be in two groups.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// The names of the `AutoscalingPolicy` objects that apply to the group.
    #[serde(default, deserialize_with = "null_is_empty")]
    pub policies: Vec<String>,
    /// The name of the `AutoscalingEngine` that adds and removes nodes; for a node pool `containership`.
    pub engine: String,
    /// For how many seconds nothing is scaled after the group was scaled.
    pub cooldown_period: i64,
    /// The minimum number of nodes.
    #[schemars(range(min = 0))]
    pub min_nodes: i64,
    /// The maximum number of nodes.
    #[schemars(range(min = 0))]
    pub max_nodes: i64,
    /// True if nothing is scaled at present.
    #[serde(default)]
    pub suspended: bool,
    /// The nodes that are added and removed; if absent, the engine decides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scaling_strategy: Option<ScalingStrategy>,
}

/// The nodes that are added and removed, by the names of the engine's strategies, for example `random`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(description = "Which nodes are added and removed; if absent, the engine decides.")]
pub struct ScalingStrategy {
    /// The strategy that adds nodes; if empty, the engine decides.
    #[serde(default)]
    pub scale_up: String,
    /// The strategy that removes nodes; if empty, the engine decides.
    #[serde(default)]
    pub scale_down: String,
}

/// The last action of Cerebral.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalingGroupStatus {
    /// When Cerebral last scaled the group (RFC 3339). Absent or null if it never did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub last_updated_at: Option<String>,
}
