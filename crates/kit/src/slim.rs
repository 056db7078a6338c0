//! Metadata without what no controller reads: a Node's managed fields and annotations are most of its 15 kB, and are
//! dropped while they are decoded.
//!
//! Each function is for `#[serde(deserialize_with = "tidewaiter_kit::slim::…")]` on the field `metadata: ObjectMeta` of
//! a slim type, which gets the rest of its `Resource` from `#[derive(kube::Resource)] #[resource(inherit = …)]`. An
//! object with slim metadata must never be written back whole.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta, OwnerReference, Time};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// Every field manager of ours begins with this.
pub const OUR_MANAGERS: &str = "tidewaiter/";

/// Keeps name, namespace, uid, resourceVersion, generation, labels, owner references and deletionTimestamp.
///
/// # Errors
/// When a field has the wrong type.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Ok(Slim::<Labels>::deserialize(deserializer)?.with_labels(|labels| labels))
}

/// As [`metadata`], with the annotations.
///
/// # Errors
/// When a field has the wrong type.
pub fn annotated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut slim = Slim::<Labels, Labels>::deserialize(deserializer)?;
    Ok(ObjectMeta {
        annotations: slim.annotations.take(),
        ..slim.with_labels(|labels| labels)
    })
}

/// As [`annotated`], with the time of the creation.
///
/// # Errors
/// When a field has the wrong type.
pub fn dated<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut slim = Slim::<Labels, Labels>::deserialize(deserializer)?;
    Ok(ObjectMeta {
        annotations: slim.annotations.take(),
        creation_timestamp: slim.creation_timestamp.take(),
        ..slim.with_labels(|labels| labels)
    })
}

/// As [`annotated`], with the finalizers: what a writer reads of a response.
///
/// # Errors
/// When a field has the wrong type.
pub(crate) fn written<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    let mut slim = Slim::<Labels, Labels>::deserialize(deserializer)?;
    Ok(ObjectMeta {
        annotations: slim.annotations.take(),
        finalizers: slim.finalizers.take(),
        ..slim.with_labels(|labels| labels)
    })
}

/// As [`metadata`], without the labels.
///
/// # Errors
/// When a field has the wrong type.
pub fn without_labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    Ok(Slim::<IgnoredAny>::deserialize(deserializer)?.with_labels(|_| Labels::new()))
}

/// Keeps only name, namespace, uid, resourceVersion and the labels that `L` reads: for kinds with very many objects.
///
/// # Errors
/// When a field has the wrong type.
pub fn with_labels_of<'de, D, L>(deserializer: D) -> Result<ObjectMeta, D::Error>
where
    D: Deserializer<'de>,
    L: Deserialize<'de> + Into<BTreeMap<String, String>>,
{
    let meta = Slim::<L>::deserialize(deserializer)?.with_labels(L::into);
    Ok(ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        labels: meta.labels,
        ..ObjectMeta::default()
    })
}

/// As [`metadata`], with what a writer of the object needs: finalizers, annotations, and the fields that we manage.
///
/// # Errors
/// When a field has the wrong type.
pub fn for_writer<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    // As text: those of others may be nested deeper than the parser allows.
    let mut slim = Slim::<Labels, Labels, Vec<Box<RawValue>>>::deserialize(deserializer)?;
    let entries = slim.managed_fields.take().into_iter().flatten();
    let entries = entries.filter_map(|entry| serde_json::from_str::<ManagedFieldsEntry>(entry.get()).ok());
    let mut metadata = ObjectMeta {
        annotations: slim.annotations.take(),
        finalizers: slim.finalizers.take(),
        managed_fields: Some(entries.collect()),
        ..slim.with_labels(|labels| labels)
    };
    keep_our_fields(&mut metadata);
    Ok(metadata)
}

/// Drops what no controller reads of whole metadata: annotations, and the fields that others manage.
pub(crate) fn prune(metadata: &mut ObjectMeta) {
    metadata.annotations = None;
    keep_our_fields(metadata);
}

fn keep_our_fields(metadata: &mut ObjectMeta) {
    let ours = |entry: &ManagedFieldsEntry| entry.manager.as_deref().is_some_and(|it| it.starts_with(OUR_MANAGERS));
    if let Some(entries) = &mut metadata.managed_fields {
        entries.retain(ours);
    }
    metadata.managed_fields = metadata.managed_fields.take().filter(|entries| !entries.is_empty());
}

type Labels = BTreeMap<String, String>;

#[derive(Deserialize)]
#[serde(
    rename_all = "camelCase",
    bound(deserialize = "L: Deserialize<'de>, A: Deserialize<'de>, F: Deserialize<'de>")
)]
struct Slim<L, A = IgnoredAny, F = IgnoredAny> {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    generation: Option<i64>,
    labels: Option<L>,
    annotations: Option<A>,
    finalizers: Option<Vec<String>>,
    owner_references: Option<Vec<OwnerReference>>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    managed_fields: Option<F>,
}

impl<L, A, F> Slim<L, A, F> {
    fn with_labels(self, labels: impl FnOnce(L) -> Labels) -> ObjectMeta {
        ObjectMeta {
            name: self.name,
            namespace: self.namespace,
            uid: self.uid,
            resource_version: self.resource_version,
            generation: self.generation,
            labels: self.labels.map(labels).filter(|labels| !labels.is_empty()),
            owner_references: self.owner_references,
            deletion_timestamp: self.deletion_timestamp,
            ..ObjectMeta::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn full() -> Value {
        json!({
            "name": "n", "uid": "u", "resourceVersion": "7", "generation": 3, "labels": {"a": "b", "c": "d"},
            "annotations": {"big": "x"}, "finalizers": ["f"],
            "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:x": {}}}, {"manager": "tidewaiter/test", "fieldsV1": {"f:y": {}}}],
            "creationTimestamp": "2026-01-01T00:00:00Z", "deletionTimestamp": "2026-01-02T00:00:00Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}],
        })
    }

    #[test]
    fn keeps_what_plans_read_and_drops_the_rest() {
        let meta = metadata(full()).unwrap();
        let named = (
            meta.name.as_deref(),
            meta.uid.as_deref(),
            meta.resource_version.as_deref(),
        );
        assert_eq!(named, (Some("n"), Some("u"), Some("7")));
        assert_eq!((meta.generation, meta.labels.unwrap()["a"].as_str()), (Some(3), "b"));
        assert!(meta.deletion_timestamp.is_some());
        assert_eq!(meta.owner_references.unwrap().len(), 1);
        assert!(meta.annotations.is_none() && meta.managed_fields.is_none() && meta.creation_timestamp.is_none());
        assert!(meta.finalizers.is_none());
    }

    #[test]
    fn keeps_annotations_where_they_are_read() {
        let meta = annotated(full()).unwrap();
        assert_eq!(meta.annotations, Some([("big".to_owned(), "x".to_owned())].into()));
        assert!(meta.labels.is_some() && meta.managed_fields.is_none() && meta.finalizers.is_none());
    }

    #[test]
    fn keeps_the_labels_that_are_asked_for() {
        #[derive(Deserialize)]
        struct OnlyA {
            a: Option<String>,
        }
        impl From<OnlyA> for Labels {
            fn from(labels: OnlyA) -> Self {
                labels.a.map(|value| ("a".to_owned(), value)).into_iter().collect()
            }
        }
        let read = with_labels_of::<_, OnlyA>(full()).unwrap().labels;
        assert_eq!(read, Some([("a".to_owned(), "b".to_owned())].into()));
        assert_eq!(without_labels(full()).unwrap().labels, None);
    }

    #[test]
    fn a_writer_sees_finalizers_annotations_and_its_own_fields() {
        let meta = for_writer(full()).unwrap();
        assert_eq!(meta.finalizers, Some(vec!["f".to_owned()]));
        assert!(meta.annotations.is_some());
        let managers: Vec<_> = meta
            .managed_fields
            .iter()
            .flatten()
            .filter_map(|it| it.manager.clone())
            .collect();
        assert_eq!(managers, ["tidewaiter/test"]);
    }
}
