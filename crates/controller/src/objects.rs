//! The kinds that the role caches, as much of each as its controllers read: of a Node about a twentieth of what the API
//! server sends, the NodeIdentity whole, but for the metadata that no plan reads.
//!
//! A kubelet can write everything in a Node except the name and the uid, so nothing in it proves anything.

use std::collections::BTreeMap;
use std::net::IpAddr;

use k8s_openapi::api::core::v1::Node as FullNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::json;
use tidewaiter_api::names::{INSTANCE_GROUP_LABEL, UNIDENTIFIED_EFFECT, UNIDENTIFIED_TAINT};
use tidewaiter_api::node_identity::{LABELS_VALID, QUARANTINED};
use tidewaiter_api::{
    ConditionStatus, InstanceGroupName, NodeIdentity, NodeIdentitySpec, NodeIdentityStatus, RecordedLabel,
};
use tidewaiter_validation::objects::{NodeCondition, conditions};

/// A slim Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = FullNode)]
pub struct Node {
    /// Name, uid, resourceVersion, labels, deletionTimestamp.
    #[serde(deserialize_with = "tidewaiter_kit::slim::metadata")]
    pub metadata: ObjectMeta,
    /// The part of the spec that is read.
    #[serde(default)]
    pub spec: Spec,
    /// The part of the status that is read.
    #[serde(default)]
    pub status: Status,
}

/// A slim `spec`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// The instance that the Node claims to be; not yet checked for anything.
    #[serde(default, rename = "providerID")]
    pub provider_id: Option<Box<str>>,
    /// All taints, whole, because a patch must repeat them.
    #[serde(default)]
    pub taints: Option<Vec<serde_json::Value>>,
}

/// The identity of one machine, and of one start of it. A kubelet writes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The beginning of `systemUUID`.
    #[serde(default, rename = "systemUUID", deserialize_with = "beginning")]
    pub system_uuid: Box<str>,
    /// The beginning of `bootID`.
    #[serde(default, rename = "bootID", deserialize_with = "beginning")]
    pub boot_id: Box<str>,
}

/// A slim `status`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The addresses of type `InternalIP` that are addresses.
    #[serde(default, rename = "addresses", with = "internal_ips")]
    pub internal_ips: Vec<IpAddr>,
    /// The machine.
    #[serde(default, rename = "nodeInfo")]
    pub machine: Machine,
    /// The conditions that decide whether the Node is ready. Only the verdict on the cluster reads them.
    #[serde(default, deserialize_with = "conditions", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
}

impl Node {
    /// The labels; a Node without any has none.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.metadata.labels.as_ref().unwrap_or(&NONE)
    }

    /// The instance that the Node claims to be, if it claims one.
    #[must_use]
    pub fn claim(&self) -> Option<&str> {
        self.spec.provider_id.as_deref().filter(|claim| !claim.is_empty())
    }

    /// The taints as they should be once the Node is identified, if the startup taint is there to be lifted.
    #[must_use]
    pub fn taints_without_startup_taint(&self) -> Option<Vec<serde_json::Value>> {
        self.startup_taints().next()?;
        let others = self.taints().filter(|taint| !is_startup_taint(taint));
        Some(others.cloned().collect())
    }

    /// The taints as they should be while the Node is not proven, if the startup taint is not there as it should
    /// be.
    #[must_use]
    pub fn taints_with_startup_taint(&self) -> Option<Vec<serde_json::Value>> {
        let effect = |taint: &serde_json::Value| {
            taint.get("effect").and_then(serde_json::Value::as_str) == Some(UNIDENTIFIED_EFFECT)
        };
        if self.startup_taints().any(effect) {
            return None;
        }
        let startup = json!({ "key": UNIDENTIFIED_TAINT, "effect": UNIDENTIFIED_EFFECT });
        Some(self.taints().cloned().chain([startup]).collect())
    }

    /// The startup taints, whatever their effect.
    pub fn startup_taints(&self) -> impl Iterator<Item = &serde_json::Value> {
        self.taints().filter(|taint| is_startup_taint(taint))
    }

    fn taints(&self) -> impl Iterator<Item = &serde_json::Value> {
        self.spec.taints.iter().flatten()
    }
}

fn is_startup_taint(taint: &serde_json::Value) -> bool {
    taint.get("key").and_then(serde_json::Value::as_str) == Some(UNIDENTIFIED_TAINT)
}

/// The first part of an id: enough to tell two of them apart, and a fraction of the memory.
fn beginning<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Box<str>, D::Error> {
    let whole = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
    Ok(whole.chars().take(12).collect::<String>().into())
}

mod internal_ips {
    use std::borrow::Cow;

    use super::{Deserialize, Deserializer, IpAddr, Serialize, Serializer};

    #[derive(Serialize, Deserialize)]
    struct Address {
        #[serde(rename = "type")]
        type_: Cow<'static, str>,
        address: String,
    }

    const INTERNAL_IP: &str = "InternalIP";

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<IpAddr>, D::Error> {
        let addresses = Option::<Vec<Address>>::deserialize(deserializer)?.unwrap_or_default();
        let mut ips: Vec<IpAddr> = addresses
            .iter()
            .filter(|address| address.type_ == INTERNAL_IP)
            .filter_map(|address| address.address.parse().ok())
            .collect();
        ips.shrink_to_fit();
        Ok(ips)
    }

    pub(super) fn serialize<S: Serializer>(ips: &[IpAddr], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(ips.iter().map(|ip| Address {
            type_: INTERNAL_IP.into(),
            address: ip.to_string(),
        }))
    }
}

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
    /// Returns true if the two have the same content and the same owners.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn node(value: serde_json::Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn is_cached_without_a_loss() {
        let whole = node(json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": {"a": "b"}, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"providerID": "aws:///a/i-1", "taints": [{"key": "a", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"}]},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"}],
                "nodeInfo": {"systemUUID": "0f8fad5b-d9cb-469f-a165-70867728950e", "bootID": "7c9e6679-7425-40de-944b-e07fc1f90ae7"}},
        }));
        assert_eq!(&*whole.status.machine.boot_id, "7c9e6679-742");
        assert_eq!(node(serde_json::to_value(&whole).unwrap()), whole);
        assert_eq!(whole.status.internal_ips.len(), 2);
    }

    #[test]
    fn only_internal_addresses_are_read_and_junk_is_not() {
        let node = node(json!({"metadata": {"name": "n"}, "status": {"addresses": [
            {"type": "InternalIP", "address": "10.0.0.1"}, {"type": "InternalIP", "address": "fd00::1"},
            {"type": "ExternalIP", "address": "1.2.3.4"}, {"type": "Hostname", "address": "10.0.0.9"},
            {"type": "InternalIP", "address": "junk"}]}}));
        assert_eq!(
            node.status.internal_ips,
            ["10.0.0.1".parse::<IpAddr>().unwrap(), "fd00::1".parse().unwrap()]
        );
    }

    #[test]
    fn only_the_startup_taint_is_lifted() {
        let other =
            json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"});
        let startup = json!({"key": UNIDENTIFIED_TAINT, "effect": "NoSchedule"});
        let with = node(json!({"metadata": {}, "spec": {"taints": [other, startup]}}));
        assert_eq!(with.taints_without_startup_taint(), Some(vec![other.clone()]));
        let without = node(json!({"metadata": {}, "spec": {"taints": [other]}}));
        assert_eq!(without.taints_without_startup_taint(), None);
    }

    #[test]
    fn the_startup_taint_comes_beside_the_others_and_once() {
        let other = json!({"key": "dedicated", "value": "x", "effect": "NoSchedule"});
        let startup = json!({"key": UNIDENTIFIED_TAINT, "effect": "NoSchedule"});
        let weaker = json!({"key": UNIDENTIFIED_TAINT, "effect": "PreferNoSchedule"});
        let with = |taints: &[&serde_json::Value]| {
            node(json!({"metadata": {}, "spec": {"taints": taints}})).taints_with_startup_taint()
        };
        assert_eq!(with(&[]), Some(vec![startup.clone()]));
        assert_eq!(with(&[&other]), Some(vec![other.clone(), startup.clone()]));
        assert_eq!(with(&[&weaker]), Some(vec![weaker.clone(), startup.clone()]));
        assert_eq!(with(&[&startup, &other]), None);
    }
}
