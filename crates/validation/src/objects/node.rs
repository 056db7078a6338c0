//! The Node: whether it is ready, which instance it says it is, and the labels that the verdict shows.

use std::borrow::Cow;

use k8s_openapi::api::core::v1::Node as FullNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::names::ROLE_CONTROL_PLANE_LABEL;
use tidewaiter_api::{ConditionStatus, ProviderId};

use super::{known, known_text, label, resource_like, same_metadata};

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// What [`ZONE`] was called before Kubernetes 1.17.
pub(super) const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

/// The labels of a Node that the verdict reads.
pub const LABELS_READ: [&str; 4] = [ROLE_CONTROL_PLANE_LABEL, HOSTNAME, ZONE, OLD_ZONE];

/// A slim Node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Node {
    /// Name, uid, resourceVersion, and the labels for control plane, host name and zone.
    #[serde(deserialize_with = "super::metadata")]
    pub metadata: ObjectMeta,
    /// What is read of the spec.
    #[serde(default)]
    pub spec: NodeSpec,
    /// What is read of the status.
    #[serde(default)]
    pub status: NodeStatus,
}

/// A slim `spec`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSpec {
    /// The instance that the Node claims to be.
    #[serde(
        default,
        rename = "providerID",
        deserialize_with = "known_text",
        skip_serializing_if = "Option::is_none"
    )]
    pub provider_id: Option<ProviderId>,
}

/// A slim `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// The conditions that decide readiness.
    #[serde(default, deserialize_with = "conditions", skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<NodeCondition>,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeCondition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: NodeConditionType,
    /// Whether it holds.
    pub status: ConditionStatus,
}

/// The conditions that decide readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeConditionType {
    /// The kubelet is well.
    Ready,
    /// The node's network is not set up.
    NetworkUnavailable,
}

impl Node {
    /// Whether the two differ in nothing that the verdict reads: a heartbeat changes only the resourceVersion and what was
    /// dropped while decoding.
    #[must_use]
    pub fn same(&self, other: &Self) -> bool {
        same_metadata(&self.metadata, &other.metadata) && self.spec == other.spec && self.status == other.status
    }

    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The status of the Ready condition; Unknown when there is none.
    pub(crate) fn ready_status(&self) -> ConditionStatus {
        self.condition(NodeConditionType::Ready)
            .unwrap_or(ConditionStatus::Unknown)
    }

    /// The condition `Ready` is True and `NetworkUnavailable` is not True.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_status() == ConditionStatus::True
            && self.condition(NodeConditionType::NetworkUnavailable) != Some(ConditionStatus::True)
    }

    pub(crate) fn is_control_plane(&self) -> bool {
        label(&self.metadata, ROLE_CONTROL_PLANE_LABEL).is_some()
    }

    pub(crate) fn zone(&self) -> &str {
        let zone = label(&self.metadata, ZONE).filter(|zone| !zone.is_empty());
        zone.or_else(|| label(&self.metadata, OLD_ZONE)).unwrap_or_default()
    }

    pub(crate) fn hostname(&self) -> &str {
        label(&self.metadata, HOSTNAME).unwrap_or_default()
    }

    fn condition(&self, type_: NodeConditionType) -> Option<ConditionStatus> {
        let conditions = &self.status.conditions;
        conditions
            .iter()
            .find(|found| found.type_ == type_)
            .map(|found| found.status)
    }
}

/// The conditions that decide readiness, of all that a Node has; for whoever reads more of a Node than the verdict does.
///
/// # Errors
/// When it is no list of conditions.
pub fn conditions<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<NodeCondition>, D::Error> {
    #[derive(Deserialize)]
    struct Condition<'a> {
        #[serde(rename = "type", borrow)]
        type_: Cow<'a, str>,
        #[serde(default, borrow)]
        status: Cow<'a, str>,
    }
    let all = Option::<Vec<Condition<'de>>>::deserialize(deserializer)?.unwrap_or_default();
    let read = all.iter().filter_map(|condition| {
        Some(NodeCondition {
            type_: known(&condition.type_)?,
            status: known(&condition.status)?,
        })
    });
    Ok(read.collect())
}

resource_like!(Node, FullNode);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn full() -> Value {
        json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "annotations": {"big": "x"},
                "labels": {"kubernetes.io/hostname": "h", "topology.kubernetes.io/zone": "z", "other": "x",
                    "node-role.kubernetes.io/control-plane": ""}},
            "spec": {"providerID": "aws:///z/i-1", "podCIDR": "10.0.0.0/24"},
            "status": {"conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "2026-01-01T00:00:00Z"}],
                "images": [{"names": ["a"]}]},
        })
    }

    fn node(value: Value) -> Node {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn keeps_what_is_read_and_drops_the_rest_and_its_own_json_loses_nothing() {
        let slim = node(full());
        assert_eq!((slim.name(), slim.zone(), slim.hostname()), ("n", "z", "h"));
        assert!(slim.is_ready() && slim.is_control_plane());
        let text = serde_json::to_value(&slim).unwrap();
        let expected = json!({
            "metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": full()["metadata"]["labels"]},
            "spec": {"providerID": "aws:///z/i-1"},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let mut expected = expected;
        expected["metadata"]["labels"].as_object_mut().unwrap().remove("other");
        assert_eq!(text, expected);
        assert_eq!(node(text), slim);
        let bare = node(json!({"metadata": {"name": "n"}}));
        assert_eq!(node(serde_json::to_value(&bare).unwrap()), bare);
    }

    #[test]
    fn what_cannot_be_understood_is_absent_and_no_error() {
        let strange = node(json!({"metadata": {"name": "n", "labels": null},
            "spec": {"providerID": "not an id"},
            "status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]}}));
        assert_eq!(strange.spec.provider_id, None);
        assert_eq!(strange.ready_status(), ConditionStatus::Unknown);
        assert_eq!(
            node(json!({"metadata": {}, "spec": {"providerID": null}, "status": {"conditions": null}})),
            Node::default()
        );
    }

    #[test]
    fn the_older_label_names_the_zone_where_the_newer_does_not() {
        let with = |labels: Value| node(json!({"metadata": {"labels": labels}})).zone().to_owned();
        assert_eq!(with(json!({OLD_ZONE: "old"})), "old");
        assert_eq!(with(json!({OLD_ZONE: "old", ZONE: ""})), "old");
        assert_eq!(with(json!({OLD_ZONE: "old", ZONE: "new"})), "new");
    }

    #[test]
    fn a_heartbeat_is_the_same_node() {
        let mut beat = full();
        beat["metadata"]["resourceVersion"] = json!("8");
        beat["status"]["conditions"][1]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
        assert!(node(full()).same(&node(beat)));
        for (pointer, value) in [
            ("/metadata/uid", json!("v")),
            ("/metadata/labels/kubernetes.io~1hostname", json!("i")),
            ("/spec/providerID", json!("aws:///z/i-2")),
            ("/status/conditions/1/status", json!("False")),
        ] {
            let mut changed = full();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert!(!node(full()).same(&node(changed)), "{pointer}");
        }
    }
}
