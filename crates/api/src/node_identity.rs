//! `NodeIdentity`: the identity of a Node according to the cloud, and the labels that follow from it.
//!
//! A record is cluster-scoped, has the name of its Node and is owned by it. Only the NodeController writes it, so it
//! has no status subresource: one write updates everything. A kubelet cannot write it, so it is where the controller
//! stores the label keys that it has set; an annotation of the Node could be forged.

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

use crate::condition::{Condition, TIMESTAMP_PATTERN};
use crate::schema::without_status_subresource;
use crate::values::{InstanceGroupName, LabelKey, LabelSource, LabelValue, Lifecycle, NodeName, NodeUid};

/// Condition type: whether the cloud confirms the identity of the Node.
pub const VERIFIED: &str = "Verified";

/// Condition type: whether every label of the definition is valid and was set.
pub const LABELS_VALID: &str = "LabelsValid";

/// Condition type: whether a proven Node has labels that only other groups define. Absent while this was never
/// determined.
pub const FOREIGN_LABELS: &str = "ForeignLabels";

/// Condition type: whether a forged Node is quarantined, that is, has lost the labels that only a proven Node may have.
pub const QUARANTINED: &str = "Quarantined";

/// The Node and the claim that the record is about.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, KubeSchema)]
#[kube(
    group = "tidewaiter.dev",
    version = "v1alpha1",
    kind = "NodeIdentity",
    plural = "nodeidentities",
    shortname = "nid",
    category = "tidewaiter",
    doc = "The identity of a Node according to the cloud, and the labels that follow from it. Written by the NodeController, owned by its Node.",
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
        description = "The kOps InstanceGroup, as confirmed by the cloud"
    ),
    printcolumn(
        name = "Identity",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Verified\")].reason",
        description = "Proven, or the reason for the refusal"
    ),
    printcolumn(
        name = "Verified",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Verified\")].status",
        description = "Whether the cloud confirms the identity of this Node",
        priority = 1
    ),
    printcolumn(
        name = "Instance",
        type_ = "string",
        json_path = ".status.instance",
        description = "The instance's name or id in the cloud",
        priority = 1
    ),
    printcolumn(
        name = "Zone",
        type_ = "string",
        json_path = ".status.zone",
        description = "The instance's zone according to the cloud",
        priority = 1
    ),
    printcolumn(
        name = "Lifecycle",
        type_ = "string",
        json_path = ".status.lifecycle",
        description = "The billing model of the instance",
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
    /// `metadata.uid` of the Node. A record with another uid is about a Node that no longer exists.
    #[serde(rename = "nodeUID")]
    pub node_uid: NodeUid,
    /// `spec.providerID` of the Node when the record was written. It is the kubelet's claim and is truncated when it is
    /// longer than any cloud's.
    #[serde(rename = "providerID", default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 1024))]
    pub provider_id: String,
}

/// The result of the last check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeIdentityStatus {
    /// The instance's name or id in the cloud, for example `i-0123456789abcdef0`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub instance: Option<String>,
    /// The kOps InstanceGroup, as confirmed by the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_group: Option<InstanceGroupName>,
    /// The instance's zone according to the cloud.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub zone: Option<String>,
    /// The billing model of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// When the cloud first confirmed the identity of the Node with this uid (UTC, whole seconds). Later results do not
    /// change it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time", "pattern" = TIMESTAMP_PATTERN))]
    pub first_verified: Option<Timestamp>,
    /// True if the Node is refused, with evidence that its claim is forged.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub forged: bool,
    /// Every label that the controller has set, is about to set or is about to remove. While a change is in progress,
    /// the list contains the old and the new keys, so that a crash loses none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 1024), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key"]))]
    pub labels: Vec<RecordedLabel>,
    /// The conditions of the Node's identity: `Verified`, `LabelsValid`, `ForeignLabels`, `Quarantined`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// A label that the controller owns on the Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecordedLabel {
    /// The label's key.
    pub key: LabelKey,
    /// The label's value.
    pub value: LabelValue,
    /// The origin of the label.
    pub source: LabelSource,
    /// The file in the state store, relative to the configuration base. Empty when the label follows from the instance
    /// alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 512))]
    pub file: String,
    /// The value that the Node had when the controller first recorded the key. It is given back when the definition no
    /// longer has the key; a key without it is removed then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<LabelValue>,
}

impl NodeIdentity {
    /// The record of the Node `name`. The Node owns it, so it is garbage collected with the Node.
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

    /// The condition of this type, if the record has one.
    #[must_use]
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|c| c.type_ == type_)
    }
}

/// The definition, without the status subresource that the derive adds for every type with a status.
#[must_use]
pub fn crd() -> CustomResourceDefinition {
    without_status_subresource(NodeIdentity::crd())
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
                before: Some("d".parse().unwrap()),
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
