//! The Node, as much of it as the role reads: a few hundred bytes of the 15 kB that the API server sends. One cache
//! holds it for the controllers of labels and of reports.
//!
//! A kubelet can write everything in it except the name and the uid.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Node as FullNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, ObjectMeta};
use kube::Resource;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tidewaiter_api::names::NODE_POOL_LABEL;
use tidewaiter_cloud::models::values::NodeId;
use tidewaiter_cloud::models::{CLUSTER_LABEL_PREFIX, NODE_POOL_LABEL_PREFIX};
use tidewaiter_kit::slim::OUR_MANAGERS;

/// The label with the id of the node in the cloud. A kubelet can write it on its own Node.
pub(crate) const NODE_ID_LABEL: &str = "containership.io/node-id";

/// Every key that the label controllers read contains this.
const DOMAIN: &str = "containership.io/";

/// The operation of a field manager that uses server-side apply.
const APPLY: &str = "Apply";

/// A slim Node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = FullNode)]
pub(crate) struct Node {
    /// Name, uid, resourceVersion, the labels that the controllers read, and which of them others have applied.
    #[serde(deserialize_with = "metadata")]
    pub(crate) metadata: ObjectMeta,
    #[serde(default)]
    status: NodeStatus,
}

/// A slim `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct NodeStatus {
    /// The condition `Ready`, written as the list of conditions that it is in.
    #[serde(default, rename = "conditions", deserialize_with = "ready")]
    ready: Option<[Ready; 1]>,
}

/// The condition `Ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ready {
    #[serde(rename = "type")]
    kind: ReadyType,
    #[serde(default)]
    pub(crate) status: Box<str>,
    #[serde(default)]
    pub(crate) reason: Option<Box<str>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum ReadyType {
    Ready,
    #[serde(other)]
    Other,
}

impl Node {
    /// The name, which the certificate of its kubelet binds.
    pub(crate) fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }

    /// The labels under the two prefixes, that of the node pool, and that of the node in the cloud.
    pub(crate) fn labels(&self) -> &BTreeMap<String, String> {
        static NONE: BTreeMap<String, String> = BTreeMap::new();
        self.metadata.labels.as_ref().unwrap_or(&NONE)
    }

    /// The node pool that the label names.
    pub(crate) fn claimed_pool(&self) -> Option<&str> {
        self.labels().get(NODE_POOL_LABEL).map(String::as_str)
    }

    /// Returns true if another field manager has applied the label (server-side apply), and so states that it owns it.
    pub(crate) fn is_applied_by_another(&self, key: &str) -> bool {
        let mut entries = self.metadata.managed_fields.iter().flatten();
        entries.any(|entry| applied_labels(entry).is_some_and(|labels| labels.contains_key(&format!("f:{key}"))))
    }

    /// Returns true if the two differ in nothing that the label controllers read: a heartbeat changes only the
    /// resourceVersion.
    pub(crate) fn has_labels_of(&self, other: &Self) -> bool {
        let meta = (&self.metadata, &other.metadata);
        meta.0.uid == meta.1.uid && meta.0.labels == meta.1.labels && meta.0.managed_fields == meta.1.managed_fields
    }

    /// The condition `Ready`; None before the kubelet has reported.
    pub(crate) fn ready(&self) -> Option<&Ready> {
        self.status.ready.as_ref().map(|[ready]| ready)
    }

    /// Returns true if it is ready to run pods.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready().is_some_and(|ready| &*ready.status == "True")
    }

    /// The id in the cloud that the label names, if it is one.
    pub(crate) fn cloud_id(&self) -> Option<String> {
        let label = self.labels().get(NODE_ID_LABEL)?;
        Some(label.parse::<NodeId>().ok()?.to_string())
    }

    /// Returns true if the two lead to the same reports.
    pub(crate) fn has_report_of(&self, other: &Self) -> bool {
        self.labels().get(NODE_ID_LABEL) == other.labels().get(NODE_ID_LABEL) && self.status == other.status
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Whole {
    name: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    /// As text: an entry may be nested deeper than the parser allows.
    managed_fields: Option<Vec<Box<RawValue>>>,
}

/// Reads what was written by the API server, or by the cache.
fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let whole = Whole::deserialize(deserializer)?;
    let labels = whole.labels.map(|mut labels| {
        labels.retain(|key, _| is_ours(key) || key == NODE_ID_LABEL);
        labels
    });
    let entries = whole.managed_fields.iter().flatten();
    let applied: Map<String, Value> = entries.flat_map(|entry| applied_by_others(entry.get())).collect();
    Ok(ObjectMeta {
        name: whole.name,
        uid: whole.uid,
        resource_version: whole.resource_version,
        labels: labels.filter(|labels| !labels.is_empty()),
        managed_fields: (!applied.is_empty()).then(|| vec![entry_of(&applied)]),
        ..ObjectMeta::default()
    })
}

fn is_ours(key: &str) -> bool {
    key == NODE_POOL_LABEL || key.starts_with(CLUSTER_LABEL_PREFIX) || key.starts_with(NODE_POOL_LABEL_PREFIX)
}

fn ready<'de, D: Deserializer<'de>>(conditions: D) -> Result<Option<[Ready; 1]>, D::Error> {
    let conditions = Option::<Vec<Ready>>::deserialize(conditions)?.unwrap_or_default();
    let ready = conditions
        .into_iter()
        .find(|condition| condition.kind == ReadyType::Ready);
    Ok(ready.map(|ready| [ready]))
}

/// Of an entry of the managed fields, the labels that we read and that another manager applied.
fn applied_by_others(entry: &str) -> Map<String, Value> {
    if !entry.contains(APPLY) || !entry.contains(DOMAIN) {
        return Map::new();
    }
    let Ok(entry) = serde_json::from_str::<ManagedFieldsEntry>(entry) else {
        return Map::new();
    };
    let ours = entry
        .manager
        .as_deref()
        .is_some_and(|manager| manager.starts_with(OUR_MANAGERS));
    let mut labels = applied_labels(&entry).filter(|_| !ours).cloned().unwrap_or_default();
    labels.retain(|field, _| field.strip_prefix("f:").is_some_and(is_ours));
    labels
}

/// The fields below `metadata.labels`, if the entry is that of an apply.
fn applied_labels(entry: &ManagedFieldsEntry) -> Option<&Map<String, Value>> {
    let applied = entry.operation.as_deref() == Some(APPLY);
    let FieldsV1(fields) = entry.fields_v1.as_ref().filter(|_| applied)?;
    fields.get("f:metadata")?.get("f:labels")?.as_object()
}

fn entry_of(labels: &Map<String, Value>) -> ManagedFieldsEntry {
    ManagedFieldsEntry {
        operation: Some(APPLY.to_owned()),
        fields_v1: Some(FieldsV1(json!({ "f:metadata": { "f:labels": labels } }))),
        ..ManagedFieldsEntry::default()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A Node with these labels, of which another manager has applied `applied`.
    pub(crate) fn node(labels: &[(&str, &str)], applied: &[&str]) -> Node {
        let labels: BTreeMap<_, _> = labels.iter().copied().collect();
        let fields: Map<String, Value> = applied.iter().map(|key| (format!("f:{key}"), json!({}))).collect();
        let entry = json!({"manager": "other", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": fields}}});
        let conditions =
            json!([{"type": "DiskPressure", "status": "False"}, {"type": "Ready", "status": "True", "reason": null}]);
        serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u", "resourceVersion": "7", "labels": labels, "managedFields": [entry]},
            "status": {"conditions": conditions}}))
            .unwrap()
    }

    #[test]
    fn only_what_is_read_is_kept_and_the_cache_loses_nothing() {
        let labels = [
            (NODE_POOL_LABEL, "p"),
            ("cluster.containership.io/a", "1"),
            ("nodepool.containership.io/b", "2"),
            ("containership.io/node-id", "n"),
            ("kubernetes.io/os", "linux"),
        ];
        let node = node(&labels, &["cluster.containership.io/a", "team"]);
        assert_eq!((node.labels().len(), node.is_ready()), (4, true));
        assert_eq!((node.name(), node.claimed_pool()), ("n", Some("p")));
        assert!(node.is_applied_by_another("cluster.containership.io/a"));
        assert!(!node.is_applied_by_another("nodepool.containership.io/b"));
        assert!(!node.is_applied_by_another("team"));
        let cached: Node = serde_json::from_str(&serde_json::to_string(&node).unwrap()).unwrap();
        assert_eq!(cached, node);
    }

    #[test]
    fn only_server_side_apply_of_another_manager_counts() {
        let fields = json!({"f:metadata": {"f:labels": {"f:cluster.containership.io/a": {}}}});
        let deep = format!("{}{}", "{\"f:x\":".repeat(500), "{}".to_owned() + &"}".repeat(500));
        for (entry, applied) in [
            (
                json!({"manager": "x", "operation": "Apply", "fieldsV1": fields}).to_string(),
                true,
            ),
            (
                json!({"manager": "kubectl-label", "operation": "Update", "fieldsV1": fields}).to_string(),
                false,
            ),
            (
                json!({"manager": "tidewaiter/x", "operation": "Apply", "fieldsV1": fields}).to_string(),
                false,
            ),
            (
                json!({"manager": "x", "operation": "Apply", "fieldsV1": {"f:metadata": 1}}).to_string(),
                false,
            ),
            (json!({"manager": "x", "operation": "Apply"}).to_string(), false),
            (
                format!("{{\"manager\": \"containership.io/\", \"operation\": \"Apply\", \"fieldsV1\": {deep}}}"),
                false,
            ),
        ] {
            let text = format!("{{\"metadata\": {{\"name\": \"n\", \"managedFields\": [{entry}]}}}}");
            let node: Node = serde_json::from_str(&text).unwrap();
            assert_eq!(
                node.is_applied_by_another("cluster.containership.io/a"),
                applied,
                "{entry:.200}"
            );
        }
    }

    #[test]
    fn a_heartbeat_is_the_same_node() {
        let before = node(&[("cluster.containership.io/a", "1")], &[]);
        let mut after = before.clone();
        after.metadata.resource_version = Some("8".to_owned());
        assert!(before.has_labels_of(&after));
        assert!(!before.has_labels_of(&node(&[("cluster.containership.io/a", "2")], &[])));
        assert!(!before.has_labels_of(&node(
            &[("cluster.containership.io/a", "1")],
            &["cluster.containership.io/a"]
        )));
        after.metadata.uid = Some("v".to_owned());
        assert!(!before.has_labels_of(&after));
    }

    #[test]
    fn only_readiness_and_the_id_change_a_report() {
        let status = |ready: &str, heartbeat: &str, labels: &[(&str, &str)]| {
            let labels: BTreeMap<_, _> = labels.iter().copied().collect();
            let condition =
                json!({"type": "Ready", "status": ready, "reason": "KubeletReady", "lastHeartbeatTime": heartbeat});
            let node = json!({"metadata": {"name": "n", "labels": labels}, "status": {"conditions": [condition]}});
            serde_json::from_value::<Node>(node).unwrap()
        };
        let before = status("True", "1", &[]);
        assert!(before.has_report_of(&status("True", "2", &[])));
        assert!(before.has_report_of(&status("True", "1", &[("cluster.containership.io/a", "1")])));
        assert!(!before.has_report_of(&status("False", "1", &[])));
        assert!(!before.has_report_of(&status("True", "1", &[(NODE_ID_LABEL, "n")])));
    }
}
