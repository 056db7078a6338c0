//! The Node: whether it is ready, which instance it claims to be, and the labels in a verdict.

use std::borrow::Cow;
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::names::ROLE_CONTROL_PLANE_LABEL;
use tidewaiter_api::{ConditionStatus, ProviderId};

use super::{known, label};

pub(super) const HOSTNAME: &str = "kubernetes.io/hostname";
pub(super) const ZONE: &str = "topology.kubernetes.io/zone";
/// The name of [`ZONE`] before Kubernetes 1.17.
pub(super) const OLD_ZONE: &str = "failure-domain.beta.kubernetes.io/zone";

/// The labels of a Node that the verdict reads.
pub const LABELS_READ: [&str; 4] = [ROLE_CONTROL_PLANE_LABEL, HOSTNAME, ZONE, OLD_ZONE];

/// A Node with only the fields that a verdict reads. It is small enough that all Nodes of a large cluster can be stored
/// unpacked. Verdicts share its texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "Sent")]
pub struct Node {
    pub(crate) name: Arc<str>,
    pub(super) uid: Arc<str>,
    /// The instance that the Node claims to be.
    pub(crate) provider_id: Option<ProviderId>,
    /// Usually the same text as the name.
    pub(crate) hostname: Arc<str>,
    pub(crate) zone: Arc<str>,
    control_plane: bool,
    ready: Option<ConditionStatus>,
    network_unavailable: Option<ConditionStatus>,
}

/// A Node in a response of the API server.
#[derive(Deserialize)]
struct Sent {
    #[serde(deserialize_with = "super::metadata")]
    metadata: ObjectMeta,
    #[serde(default)]
    spec: Spec,
    #[serde(default)]
    status: Status,
}

#[derive(Default, Deserialize)]
struct Spec {
    #[serde(default, rename = "providerID")]
    provider_id: Option<String>,
}

#[derive(Default, Deserialize)]
struct Status {
    #[serde(default, deserialize_with = "conditions")]
    conditions: Vec<NodeCondition>,
}

impl From<Sent> for Node {
    fn from(sent: Sent) -> Self {
        let Sent { metadata, spec, status } = sent;
        Self::new(&metadata, spec.provider_id.as_deref(), &status.conditions)
    }
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NodeCondition {
    /// The type of the condition.
    #[serde(rename = "type")]
    pub type_: NodeConditionType,
    /// The status of the condition.
    pub status: ConditionStatus,
}

/// The conditions that decide readiness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NodeConditionType {
    /// The kubelet is healthy.
    Ready,
    /// The node's network is not configured.
    NetworkUnavailable,
}

impl Node {
    /// Constructs a Node from its name, its uid and [the labels that are read](LABELS_READ), its `spec.providerID`, and
    /// its conditions.
    #[must_use]
    pub fn new(metadata: &ObjectMeta, provider_id: Option<&str>, all: &[NodeCondition]) -> Self {
        let of_type = |type_| all.iter().find(|it| it.type_ == type_).map(|it| it.status);
        let name: Arc<str> = metadata.name.as_deref().unwrap_or_default().into();
        let zone = label(metadata, ZONE).filter(|zone| !zone.is_empty());
        let hostname = label(metadata, HOSTNAME).unwrap_or_default();
        Self {
            uid: metadata.uid.as_deref().unwrap_or_default().into(),
            provider_id: provider_id.and_then(known),
            hostname: if *hostname == *name {
                Arc::clone(&name)
            } else {
                hostname.into()
            },
            zone: zone.or_else(|| label(metadata, OLD_ZONE)).unwrap_or_default().into(),
            control_plane: label(metadata, ROLE_CONTROL_PLANE_LABEL).is_some(),
            ready: of_type(NodeConditionType::Ready),
            network_unavailable: of_type(NodeConditionType::NetworkUnavailable),
            name,
        }
    }

    /// Returns the Node, which shares this text if it is its name.
    #[must_use]
    pub fn sharing_name(mut self, name: &Arc<str>) -> Self {
        for text in [&mut self.name, &mut self.hostname] {
            share(text, name);
        }
        self
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    /// The status of the condition Ready; Unknown if it is absent.
    pub(crate) fn ready_status(&self) -> ConditionStatus {
        self.ready.unwrap_or(ConditionStatus::Unknown)
    }

    /// The condition `Ready` is True and `NetworkUnavailable` is not True.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready_status() == ConditionStatus::True && self.network_unavailable != Some(ConditionStatus::True)
    }

    pub(crate) fn is_control_plane(&self) -> bool {
        self.control_plane
    }
}

/// Holds the text once if it is the same as `other`.
pub(super) fn share(text: &mut Arc<str>, other: &Arc<str>) {
    if *text == *other {
        *text = Arc::clone(other);
    }
}

/// Deserializes the conditions that determine readiness and drops the others, for types that read more of a Node than a
/// verdict.
///
/// # Errors
/// If it is not a list of conditions.
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
    fn keeps_what_is_read() {
        let slim = node(full());
        assert_eq!((slim.name(), slim.uid()), ("n", "u"));
        assert_eq!((&*slim.zone, &*slim.hostname), ("z", "h"));
        assert_eq!(slim.provider_id.as_ref().unwrap().as_str(), "aws:///z/i-1");
        assert!(slim.is_ready() && slim.is_control_plane());
        let named = node(json!({"metadata": {"name": "n", "labels": {HOSTNAME: "n"}}}));
        assert!(Arc::ptr_eq(&named.hostname, &named.name), "{named:?}");
        let bare = node(json!({"metadata": {"name": "n"}}));
        assert_eq!((&*bare.hostname, &*bare.zone, bare.is_control_plane()), ("", "", false));
    }

    #[test]
    fn what_cannot_be_understood_is_absent_and_no_error() {
        let strange = node(json!({"metadata": {"name": "n", "labels": null},
            "spec": {"providerID": "not an id"},
            "status": {"conditions": [{"type": "Ready", "status": "Perhaps"}]}}));
        assert_eq!(strange.provider_id, None);
        assert_eq!(strange.ready_status(), ConditionStatus::Unknown);
        assert_eq!(
            node(json!({"metadata": {}, "spec": {"providerID": null}, "status": {"conditions": null}})),
            Node::default()
        );
    }

    #[test]
    fn the_older_label_names_the_zone_where_the_newer_does_not() {
        let with = |labels: Value| node(json!({"metadata": {"labels": labels}})).zone.to_string();
        assert_eq!(with(json!({OLD_ZONE: "old"})), "old");
        assert_eq!(with(json!({OLD_ZONE: "old", ZONE: ""})), "old");
        assert_eq!(with(json!({OLD_ZONE: "old", ZONE: "new"})), "new");
    }

    #[test]
    fn what_is_not_read_makes_no_other_node() {
        let mut beat = full();
        beat["metadata"]["resourceVersion"] = json!("8");
        beat["status"]["conditions"][1]["lastHeartbeatTime"] = json!("2026-01-01T00:05:00Z");
        assert_eq!(node(full()), node(beat));
        for (pointer, value) in [
            ("/metadata/labels/kubernetes.io~1hostname", json!("i")),
            ("/spec/providerID", json!("aws:///z/i-2")),
            ("/status/conditions/1/status", json!("False")),
        ] {
            let mut changed = full();
            *changed.pointer_mut(pointer).unwrap() = value;
            assert_ne!(node(full()), node(changed), "{pointer}");
        }
    }
}
