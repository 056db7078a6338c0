//! `NodePoolLabel`: a label of every node of a node pool.
//!
//! The object itself has the label `containership.io/node-pool-id` with the id of the node pool: clients of the Go
//! coordinator list by it.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::MAX_ID;
use crate::values::{LabelKey, LabelValue};

/// A label of every node of a node pool.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "provision.containership.io",
    version = "v3",
    kind = "NodePoolLabel",
    plural = "nodepoollabels",
    shortname = "npl",
    namespaced,
    doc = "A label of every node of a node pool. Mirrored from the cloud by the coordinator.",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    validation = Rule::new("self.metadata.name == self.spec.id").message("metadata.name must be spec.id"),
    printcolumn(name = "Pool", type_ = "string", json_path = ".spec.node_pool_id", description = "The id of the node pool", priority = 1),
    printcolumn(name = "Key", type_ = "string", json_path = ".spec.key", description = "The key of the label", priority = 1),
    printcolumn(name = "Value", type_ = "string", json_path = ".spec.value", description = "The value of the label", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct NodePoolLabelSpec {
    /// The id of the label in the cloud, a UUID.
    #[schemars(length(max = MAX_ID))]
    pub id: String,
    /// When the label was created, as the cloud writes it.
    #[serde(default)]
    pub created_at: String,
    /// When the label was last changed, as the cloud writes it.
    #[serde(default)]
    pub updated_at: String,
    /// The key of the label, with its prefix `nodepool.containership.io/`.
    #[x_kube(validation = Rule::new("self.startsWith('nodepool.containership.io/')").message("must begin with nodepool.containership.io/"))]
    pub key: LabelKey,
    /// The value of the label.
    #[serde(default)]
    pub value: LabelValue,
    /// The id of the node pool in the cloud, a UUID.
    pub node_pool_id: LabelValue,
}
