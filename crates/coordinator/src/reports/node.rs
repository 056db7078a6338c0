//! A Node, as much of it as is reported: about a hundredth of what the API server sends.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node as FullNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer};
use tidewaiter_cloud::models::values::NodeId;

/// The label with the id of the node in the cloud. A kubelet can write it on its own Node.
pub(super) const NODE_ID_LABEL: &str = "containership.io/node-id";

/// A slim Node. Its heartbeats change nothing here.
#[derive(Clone, Debug, PartialEq, Deserialize, Resource)]
#[resource(inherit = FullNode)]
pub(super) struct Node {
    #[serde(deserialize_with = "tidewaiter_kit::slim::with_labels_of::<_, Labels>")]
    pub(super) metadata: ObjectMeta,
    #[serde(default)]
    pub(super) status: NodeStatus,
}

/// A slim `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct NodeStatus {
    /// The condition `Ready`.
    #[serde(default, rename = "conditions", deserialize_with = "ready")]
    pub(super) ready: Option<Ready>,
}

/// The condition `Ready`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ready {
    pub(super) status: Box<str>,
    pub(super) reason: Box<str>,
}

impl Node {
    /// Whether it is ready to run pods.
    pub(super) fn is_ready(&self) -> bool {
        self.status.ready.as_ref().is_some_and(|ready| &*ready.status == "True")
    }

    /// Whether the other version of the Node leads to the same reports.
    pub(super) fn says(&self, other: &Self) -> bool {
        self.metadata.labels == other.metadata.labels && self.status == other.status
    }
}

/// The id in the cloud that the label names, if it is one.
pub(super) fn node_id(node: &Node) -> Option<String> {
    let label = node.metadata.labels.as_ref()?.get(NODE_ID_LABEL)?;
    Some(label.parse::<NodeId>().ok()?.to_string())
}

/// The only label that is read.
#[derive(Deserialize)]
struct Labels {
    #[serde(rename = "containership.io/node-id")]
    node_id: Option<String>,
}

impl From<Labels> for BTreeMap<String, String> {
    fn from(labels: Labels) -> Self {
        labels
            .node_id
            .map(|id| (NODE_ID_LABEL.to_owned(), id))
            .into_iter()
            .collect()
    }
}

fn ready<'de, D: Deserializer<'de>>(conditions: D) -> Result<Option<Ready>, D::Error> {
    #[derive(Deserialize)]
    struct Condition {
        #[serde(rename = "type")]
        kind: String,
        status: Box<str>,
        #[serde(default)]
        reason: Option<Box<str>>,
    }
    let conditions = Option::<Vec<Condition>>::deserialize(conditions)?.unwrap_or_default();
    let ready = conditions.into_iter().find(|condition| condition.kind == "Ready");
    Ok(ready.map(|Condition { status, reason, .. }| Ready {
        status,
        reason: reason.unwrap_or_default(),
    }))
}
