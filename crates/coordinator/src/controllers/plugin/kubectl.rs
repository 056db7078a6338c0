//! The traces of `kubectl apply` without `--server-side` on an object, and the transfer of its fields to server-side
//! apply. Pure.
//!
//! A field that two managers own stays when one of them does not apply it any more. So the fields of kubectl become
//! ours when an object becomes the plugin's: what a later version leaves out goes then. Source:
//! `k8s.io/client-go/util/csaupgrade`, which `kubectl apply --server-side` uses.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};
use tidewaiter_api::names::PLUGIN_LABEL;

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The API server gives this manager every field that an object had before the first server-side apply, if it kept no
/// record of them.
const BEFORE: &str = "before-first-apply";

/// The manifest that was applied last.
pub(super) fn last_applied(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(LAST_APPLIED).map(String::as_str)
}

/// Returns true if fields of the object belong to `kubectl apply`. An object of the time before managed fields has no
/// record of that.
pub(super) fn has_fields(metadata: &ObjectMeta) -> bool {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    last_applied(metadata).is_some() && (entries.is_empty() || entries.iter().any(is_kubectls))
}

/// Returns true if `kubectl apply` gave the object the label of its plugin: the manifest had it.
pub(super) fn has_label(metadata: &ObjectMeta) -> bool {
    let label = metadata.labels.as_ref().and_then(|labels| labels.get(PLUGIN_LABEL));
    let applied = last_applied(metadata).filter(|applied| applied.contains(PLUGIN_LABEL));
    let Some((label, applied)) = label.zip(applied) else {
        return false;
    };
    let applied: Value = serde_json::from_str(applied).unwrap_or_default();
    applied["metadata"]["labels"][PLUGIN_LABEL] == **label
}

/// Returns true if the entry has the fields of a `kubectl apply`, whose name differs from version to version: it owns
/// the annotation.
fn is_kubectls(entry: &ManagedFieldsEntry) -> bool {
    let fields = entry
        .fields_v1
        .as_ref()
        .map(|fields| &fields.0["f:metadata"]["f:annotations"]);
    entry.operation.as_deref() == Some("Update")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
        && fields.is_some_and(|fields| fields.get(format!("f:{LAST_APPLIED}")).is_some())
}

/// The managed fields of the object with those of kubectl as if `manager` had applied them in server-side apply.
pub(super) fn moved(metadata: &ObjectMeta, manager: &str, api_version: &str) -> Vec<ManagedFieldsEntry> {
    let entries = metadata.managed_fields.iter().flatten().cloned();
    let (mut moving, mut stay): (Vec<_>, Vec<_>) = entries.partition(|entry| {
        let is_managers = entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply");
        is_managers || is_kubectls(entry)
    });
    // Everything belongs to this one, also what others added: nothing of it is known to be kubectl's but the
    // annotation.
    moving.retain(|entry| entry.manager.as_deref() != Some(BEFORE));
    let newest = moving.iter().max_by_key(|entry| entry.time.clone());
    let newest = newest.cloned().unwrap_or_default();
    let api_version = newest.api_version.unwrap_or_else(|| api_version.to_owned());
    let mut fields = json!({"f:metadata": {"f:annotations": {format!("f:{LAST_APPLIED}"): {}}}});
    for entry in moving
        .iter()
        .filter(|entry| entry.api_version.as_ref() == Some(&api_version))
    {
        if let (Some(fields), Some(FieldsV1(Value::Object(more)))) = (fields.as_object_mut(), &entry.fields_v1) {
            add(fields, more);
        }
    }
    stay.push(ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        operation: Some("Apply".to_owned()),
        api_version: Some(api_version),
        fields_type: Some("FieldsV1".to_owned()),
        fields_v1: Some(FieldsV1(fields)),
        time: newest.time,
        subresource: None,
    });
    stay
}

/// Adds fields to a set of fields. `{}` is the field itself, which is `.` beside the fields below it.
fn add(fields: &mut Map<String, Value>, more: &Map<String, Value>) {
    if fields.is_empty() != more.is_empty() {
        fields.insert(".".to_owned(), json!({}));
    }
    for (path, below) in more {
        match (fields.get_mut(path), below) {
            (Some(Value::Object(fields)), Value::Object(more)) => add(fields, more),
            _ => {
                fields.insert(path.clone(), below.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(entries: &Value) -> ObjectMeta {
        serde_json::from_value(json!({"annotations": {LAST_APPLIED: "{}"}, "managedFields": entries})).unwrap()
    }

    fn entry(manager: &str, operation: &str, subresource: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "subresource": subresource, "apiVersion": "apps/v1", "fieldsType": "FieldsV1",
            "fieldsV1": fields})
    }

    fn annotated(mut fields: Value) -> Value {
        fields["f:metadata"] = json!({"f:annotations": {".": {}, format!("f:{LAST_APPLIED}"): {}}});
        fields
    }

    fn after(entries: &Value) -> Vec<(String, Value)> {
        let entries = moved(&object(entries), "tidewaiter/plugin", "apps/v1").into_iter();
        let shown = entries.map(|entry| {
            let name = format!("{} {}", entry.manager.unwrap(), entry.operation.unwrap());
            (name, entry.fields_v1.unwrap().0)
        });
        shown.collect()
    }

    #[test]
    fn the_fields_of_kubectl_become_ours_and_those_of_others_stay() {
        let replicas = json!({"f:spec": {"f:replicas": {}}});
        let image = json!({"f:spec": {"f:template": {"f:image": {}}}});
        let kubectls = annotated(json!({"f:spec": {"f:paused": {}, "f:template": {}}}));
        for manager in ["kubectl", "kubectl-client-side-apply"] {
            let entries = json!([
                entry(manager, "Update", "", &kubectls),
                entry("hpa", "Update", "scale", &replicas),
                entry("tidewaiter/plugin", "Apply", "", &image),
            ]);
            assert!(has_fields(&object(&entries)));
            let ours = annotated(json!({"f:spec": {"f:paused": {}, "f:template": {".": {}, "f:image": {}}}}));
            let expected = [("hpa Update", replicas.clone()), ("tidewaiter/plugin Apply", ours)];
            assert_eq!(
                after(&entries),
                expected.map(|(name, fields)| (name.to_owned(), fields))
            );
        }
        // Afterwards there are none left.
        let entries = json!([entry("tidewaiter/plugin", "Apply", "", &annotated(json!({})))]);
        assert!(!has_fields(&object(&entries)));
    }

    #[test]
    fn a_label_of_the_manifest_is_told_from_one_that_was_set_later() {
        let labelled = |applied: &str, label: &str| {
            let applied = json!({"metadata": {"labels": {PLUGIN_LABEL: applied}}}).to_string();
            let metadata = json!({"labels": {PLUGIN_LABEL: label}, "annotations": {LAST_APPLIED: applied}});
            has_label(&serde_json::from_value(metadata).unwrap())
        };
        assert!(labelled("one", "one") && !labelled("one", "two"));
        let later = json!({"labels": {PLUGIN_LABEL: "one"}, "annotations": {LAST_APPLIED: "{}"}});
        assert!(!has_label(&serde_json::from_value(later).unwrap()));
        assert!(!has_label(&object(&json!([]))));
    }

    #[test]
    fn without_a_record_of_fields_only_the_annotation_becomes_ours() {
        let annotation = json!({"f:metadata": {"f:annotations": {format!("f:{LAST_APPLIED}"): {}}}});
        let everything = annotated(json!({"f:spec": {}, "f:status": {}}));
        for entries in [json!([]), json!([entry(BEFORE, "Update", "", &everything)])] {
            assert!(has_fields(&object(&entries)));
            assert_eq!(
                after(&entries),
                [("tidewaiter/plugin Apply".to_owned(), annotation.clone())]
            );
        }
    }
}
