use super::super::*;

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
    // Our own entry is not one of kubectl's.
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
