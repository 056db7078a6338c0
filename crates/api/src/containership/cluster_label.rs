//! `ClusterLabel`: a label of every node of the cluster.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]
#![allow(clippy::duplicated_attributes, reason = "two columns of one type are no duplicate")]

use kube::{CustomResource, KubeSchema};
use serde::{Deserialize, Serialize};

use super::MAX_ID;
use crate::values::{LabelKey, LabelValue};

/// A label of every node of the cluster.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "containership.io",
    version = "v3",
    kind = "ClusterLabel",
    plural = "clusterlabels",
    shortname = "cl",
    namespaced,
    doc = "A label of every node of the cluster. Mirrored from the cloud by the coordinator.",
    derive = "PartialEq",
    label("containership.io/managed", "true"),
    validation = Rule::new("self.metadata.name == self.spec.id").message("metadata.name must be spec.id"),
    printcolumn(name = "Key", type_ = "string", json_path = ".spec.key", description = "The key of the label", priority = 1),
    printcolumn(name = "Value", type_ = "string", json_path = ".spec.value", description = "The value of the label", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
pub struct ClusterLabelSpec {
    /// The id of the label in the cloud, a UUID.
    #[schemars(length(max = MAX_ID))]
    pub id: String,
    /// When the label was created, as the cloud writes it.
    #[serde(default)]
    pub created_at: String,
    /// When the label was last changed, as the cloud writes it.
    #[serde(default)]
    pub updated_at: String,
    /// The key of the label, with its prefix `cluster.containership.io/`.
    #[x_kube(validation = Rule::new("self.startsWith('cluster.containership.io/')").message("must begin with cluster.containership.io/"))]
    pub key: LabelKey,
    /// The value of the label.
    #[serde(default)]
    pub value: LabelValue,
}
