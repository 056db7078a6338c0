//! `NodeIdentity`: what the cloud says a Node is, and which labels followed from it.
//!
//! It is cluster-scoped, named and owned by its Node, and written by the NodeController alone, so it has no status
//! subresource: one write says everything. A kubelet may not write it, which is why the keys that the controller has set
//! are remembered here and not in an annotation of the Node.

#![allow(
    unreachable_pub,
    reason = "KubeSchema repeats the struct inside a function of its own"
)]

use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{CustomResource, CustomResourceExt, KubeSchema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::values::{InstanceGroupName, LabelKey, LabelSource, LabelValue, Lifecycle, NodeName, NodeUid};

/// Type of the condition that says whether the cloud vouches for a Node.
pub const VERIFIED: &str = "Verified";

/// Type of the condition that says whether every label of the definition could be set.
pub const LABELS_VALID: &str = "LabelsValid";

/// Type of the condition that says whether a proven Node carries labels that only other groups define. It is absent where
/// that could never be told.
pub const FOREIGN_LABELS: &str = "ForeignLabels";

/// Type of the condition that says whether a Node that was refused for forgery has lost what only a proven Node may have.
pub const QUARANTINED: &str = "Quarantined";

/// Whose claim the record answers.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "tidewaiter.dev",
    version = "v1alpha1",
    kind = "NodeIdentity",
    plural = "nodeidentities",
    shortname = "nid",
    category = "tidewaiter",
    doc = "What the cloud says a Node is, and the labels that followed. Written by the NodeController, owned by its Node.",
    status = "NodeIdentityStatus",
    derive = "PartialEq",
    validation = Rule::new(
        "!has(self.status) || !has(self.status.conditions) || !self.status.conditions.exists(c, c.type == 'Verified' && c.status == 'True') || (has(self.status.instance) && has(self.status.instanceGroup))"
    )
    .message("a verified record names its instance and its instance group"),
    printcolumn(
        name = "Group",
        type_ = "string",
        json_path = ".status.instanceGroup",
        description = "The kOps InstanceGroup that the cloud vouches for"
    ),
    printcolumn(
        name = "Identity",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Verified\")].reason",
        description = "Proven, or why it is not"
    ),
    printcolumn(
        name = "Verified",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Verified\")].status",
        description = "Whether the cloud vouches for this Node",
        priority = 1
    ),
    printcolumn(
        name = "Instance",
        type_ = "string",
        json_path = ".status.instance",
        description = "The instance as the cloud names it",
        priority = 1
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".status.zone",
        description = "The zone that the cloud says",
        priority = 1
    ),
    printcolumn(
        name = "Lifecycle",
        type_ = "string",
        json_path = ".status.lifecycle",
        description = "How the cloud bills the instance",
        priority = 1
    ),
    printcolumn(
        name = "Age",
        type_ = "date",
        json_path = ".metadata.creationTimestamp",
        priority = 1
    )
)]
#[serde(rename_all = "camelCase")]
pub struct NodeIdentitySpec {
    /// `metadata.uid` of the Node. A record whose uid is another one speaks of a Node that is gone.
    #[serde(rename = "nodeUID")]
    #[schemars(length(min = 1, max = 128))]
    pub node_uid: NodeUid,
    /// `spec.providerID` of the Node as it stood when the record was written: the kubelet's claim, cut when it is longer
    /// than any cloud's.
    #[serde(rename = "providerID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub provider_id: String,
}

/// What was found out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeIdentityStatus {
    /// The instance as its cloud names it, for example `i-0123456789abcdef0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub instance: Option<String>,
    /// The kOps `InstanceGroup` that the cloud vouches for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub instance_group: Option<InstanceGroupName>,
    /// The zone that the cloud says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub zone: Option<String>,
    /// How the cloud bills the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// When the cloud first vouched for the Node of this uid (UTC, whole seconds); it stays, whatever is found out later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub first_verified: Option<Timestamp>,
    /// Every label that the controller has set, or is about to set or to remove: while a change is under way the old
    /// keys and the new ones together, so that no crash loses one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub labels: Vec<RecordedLabel>,
    /// `Verified`, and what else is to be said; one of each type.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A label that the controller answers for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedLabel {
    /// Its key.
    #[schemars(length(min = 1, max = 317))]
    pub key: LabelKey,
    /// Its value.
    #[schemars(length(max = 63))]
    pub value: LabelValue,
    /// Where it comes from.
    pub source: LabelSource,
    /// The file of the state store, below the configuration base; empty when it follows from the instance alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub file: String,
}

impl NodeIdentity {
    /// The record of Node `name`, owned by it: it goes when its Node goes.
    #[must_use]
    pub fn of_node(name: &NodeName, uid: &NodeUid, provider_id: String, status: NodeIdentityStatus) -> Self {
        let mut record = Self::new(
            name.as_str(),
            NodeIdentitySpec {
                node_uid: uid.clone(),
                provider_id,
            },
        );
        record.metadata.owner_references = Some(vec![OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: name.to_string(),
            uid: uid.to_string(),
            ..OwnerReference::default()
        }]);
        record.status = Some(status);
        record
    }

    /// The condition of this type, if the record holds one.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_)
    }
}

/// The definition, without the status subresource that the derive adds for every type with a status: who writes the
/// record writes all of it at once.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    crate::without_status_subresource(NodeIdentity::crd())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_named_and_owned_by_its_node() {
        let name: NodeName = "ip-10-0-0-1.ec2.internal".parse().unwrap();
        let uid: NodeUid = "u-1".parse().unwrap();
        let record = NodeIdentity::of_node(&name, &uid, String::new(), NodeIdentityStatus::default());
        let owner = &record.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!(record.metadata.name.as_deref(), Some("ip-10-0-0-1.ec2.internal"));
        assert_eq!((owner.kind.as_str(), owner.uid.as_str()), ("Node", "u-1"));
    }

    #[test]
    fn the_record_reads_back_what_it_wrote() {
        let status = NodeIdentityStatus {
            instance: Some("i-0123456789abcdef0".to_owned()),
            instance_group: Some("nodes".parse().unwrap()),
            lifecycle: Some(Lifecycle::Spot),
            first_verified: Some("2026-01-02T03:04:05Z".parse().unwrap()),
            labels: vec![RecordedLabel {
                key: "a/b".parse().unwrap(),
                value: "c".parse().unwrap(),
                source: LabelSource::GroupNodeLabels,
                file: "instancegroup/nodes".to_owned(),
            }],
            ..NodeIdentityStatus::default()
        };
        let record = NodeIdentity::of_node(
            &"n".parse().unwrap(),
            &"u".parse().unwrap(),
            "aws:///a/i-1".to_owned(),
            status,
        );
        let text = serde_json::to_string(&record).unwrap();
        assert_eq!(serde_json::from_str::<NodeIdentity>(&text).unwrap(), record);
    }
}
