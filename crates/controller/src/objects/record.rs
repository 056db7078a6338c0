//! The NodeIdentity as it is cached: whole, but for the metadata that no plan reads.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use tidewaiter_api::names::INSTANCE_GROUP_LABEL;
use tidewaiter_api::node_identity::{LABELS_VALID, QUARANTINED};
use tidewaiter_api::{
    ConditionStatus, InstanceGroupName, NodeIdentity, NodeIdentitySpec, NodeIdentityStatus, RecordedLabel,
};

/// A slim `NodeIdentity`. It is what the controller wrote last, so that comparing it with what it would write tells
/// whether to write at all.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = NodeIdentity)]
pub struct Record {
    /// Name, uid, resourceVersion, owner.
    #[serde(deserialize_with = "tidewaiter_kit::slim::without_labels")]
    pub metadata: ObjectMeta,
    /// The claim of the Node.
    pub spec: NodeIdentitySpec,
    /// The result of its verification.
    #[serde(default)]
    pub status: NodeIdentityStatus,
}

impl Record {
    /// Returns true if the two say the same and have the same owners.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        let meta = (&self.metadata, &other.metadata);
        meta.0.uid == meta.1.uid
            && meta.0.owner_references == meta.1.owner_references
            && self.spec == other.spec
            && self.status == other.status
    }

    /// Returns true if it goes with the Node of this uid.
    #[must_use]
    pub fn is_owned_by(&self, node_uid: &str) -> bool {
        let mut owners = self.metadata.owner_references.iter().flatten();
        owners.any(|owner| owner.uid == node_uid)
    }

    /// Returns true if it says that the Node of this uid is in quarantine.
    #[must_use]
    pub fn quarantines(&self, node_uid: &str) -> bool {
        let mut conditions = self.status.conditions.iter();
        self.spec.node_uid.as_str() == node_uid
            && conditions.any(|it| it.type_ == QUARANTINED && it.status == ConditionStatus::True)
    }

    /// Returns true if labels of its Node come from files of the state store, or should; `None` without labels.
    #[must_use]
    pub fn needs_files(&self) -> Option<bool> {
        let NodeIdentityStatus { labels, conditions, .. } = &self.status;
        let mut conditions = conditions.iter();
        let undefined = conditions.any(|it| it.type_ == LABELS_VALID && it.status == ConditionStatus::Unknown);
        let of_files = undefined || labels.iter().any(|label| !label.file.is_empty());
        (of_files || !labels.is_empty()).then_some(of_files)
    }

    /// The group for which the cloud confirmed the Node of this uid: that of the last proof, or else the one whose
    /// label was set.
    #[must_use]
    pub fn group_of(&self, node_uid: &str) -> Option<InstanceGroupName> {
        if self.spec.node_uid.as_str() != node_uid {
            return None;
        }
        self.status.instance_group.clone().or_else(|| {
            let mut labels = self.status.labels.iter();
            let label = labels.find(|label| label.key.as_str() == INSTANCE_GROUP_LABEL)?;
            label.value.as_str().parse().ok()
        })
    }

    /// The labels that were set on the Node of this uid; on another one none was.
    #[must_use]
    pub fn labels_of(&self, node_uid: &str) -> &[RecordedLabel] {
        if self.spec.node_uid.as_str() == node_uid {
            &self.status.labels
        } else {
            &[]
        }
    }
}
