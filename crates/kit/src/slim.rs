//! Metadata without what no plan reads: a Node's `managedFields` and annotations are most of its 15 kB, and are dropped
//! while decoding, never held.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference, Time};
use serde::{Deserialize, Deserializer};

/// Decodes name, namespace, uid, resourceVersion, generation, labels, owner references and deletionTimestamp; everything
/// else is left out, so an object with such metadata must never be written back whole.
///
/// For `#[serde(deserialize_with = "tidewaiter_kit::slim::metadata")]` on a `metadata: ObjectMeta`.
///
/// # Errors
/// When a field has the wrong type.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut meta = SlimMeta::deserialize(deserializer)?;
    let labels = meta.labels.take();
    Ok(ObjectMeta { labels, ..meta.bare() })
}

/// As [`metadata`], without the labels too.
///
/// # Errors
/// When a field has the wrong type.
pub fn metadata_without_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Ok(SlimMeta::deserialize(deserializer)?.bare())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimMeta {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    #[serde(default)]
    labels: Option<BTreeMap<String, String>>,
    #[serde(default)]
    owner_references: Option<Vec<OwnerReference>>,
    deletion_timestamp: Option<Time>,
}

impl SlimMeta {
    fn bare(self) -> ObjectMeta {
        ObjectMeta {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            resource_version: self.resource_version,
            generation: self.generation,
            owner_references: self.owner_references,
            deletion_timestamp: self.deletion_timestamp,
            ..ObjectMeta::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Deserialize)]
    struct Slim {
        #[serde(deserialize_with = "metadata")]
        metadata: ObjectMeta,
    }

    #[derive(Deserialize)]
    struct Slimmer {
        #[serde(deserialize_with = "metadata_without_labels")]
        metadata: ObjectMeta,
    }

    fn full() -> serde_json::Value {
        json!({"metadata": {
            "name": "n", "uid": "u", "resourceVersion": "7", "generation": 3, "labels": {"a": "b"},
            "annotations": {"big": "x"}, "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:x": {}}}],
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
        }})
    }

    #[test]
    fn keeps_what_plans_read_and_drops_the_rest() {
        let meta = serde_json::from_value::<Slim>(full()).unwrap().metadata;
        assert_eq!(
            (
                meta.name.as_deref(),
                meta.uid.as_deref(),
                meta.resource_version.as_deref()
            ),
            (Some("n"), Some("u"), Some("7"))
        );
        assert_eq!(meta.generation, Some(3));
        assert_eq!(meta.labels.unwrap()["a"], "b");
        assert!(meta.deletion_timestamp.is_some());
        assert_eq!(meta.owner_references.unwrap().len(), 1);
        assert!(meta.annotations.is_none() && meta.managed_fields.is_none() && meta.creation_timestamp.is_none());
    }

    #[test]
    fn can_leave_the_labels_out() {
        assert!(
            serde_json::from_value::<Slimmer>(full())
                .unwrap()
                .metadata
                .labels
                .is_none()
        );
    }
}
