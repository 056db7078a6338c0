use super::*;

/// An object of the kind, with these fields.
fn object(api_version: &str, kind: &str, rest: &Value) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}});
    let rest = rest.as_object().unwrap().clone();
    object.as_object_mut().unwrap().extend(rest);
    object
}

/// An object of the kind, with a value at this path.
fn nested(api_version: &str, kind: &str, path: &[&str], value: Value) -> Value {
    let rest = path.iter().rev().fold(value, |inner, field| json!({ *field: inner }));
    object(api_version, kind, &rest)
}

fn deployment(annotations: Value) -> Value {
    nested("apps/v1", "Deployment", &["metadata", "annotations"], annotations)
}

/// Each row: the manifest, what is stored of it, and whether it is applied again.
#[track_caller]
fn check(rows: impl IntoIterator<Item = (Value, Value, bool)>) {
    for (manifest, stored, again) in rows {
        let mut found = manifest.as_object().unwrap().clone();
        let is_again = as_stored(&mut found);
        assert_eq!((Value::Object(found), is_again), (stored, again), "{manifest}");
    }
}

#[test]
fn string_data_becomes_data_and_wins_over_it() {
    let secret = |rest: Value| object("v1", "Secret", &rest);
    let rows = [
        (json!({"stringData": {"a": "é"}}), json!({"data": {"a": "w6k="}}), true),
        (
            json!({"data": {"a": "YQ==", "b": "Yg=="}, "stringData": {"a": ""}}),
            json!({"data": {"a": "", "b": "Yg=="}}),
            true,
        ),
        (json!({"data": null, "stringData": {}}), json!({"data": {}}), true),
        (json!({"stringData": null}), json!({}), false),
    ];
    // The API server says what is wrong with the last ones.
    let same = [
        json!({"data": {"a": "YQ=="}}),
        json!({"stringData": {"a": 1}}),
        json!({"stringData": {"a": "a"}, "data": []}),
    ];
    check(rows.map(|(manifest, stored, again)| (secret(manifest), secret(stored), again)));
    check(same.map(|rest| (secret(rest.clone()), secret(rest), false)));
    let other = object("example.com/v1", "Secret", &json!({"stringData": {"a": "a"}}));
    check([(other.clone(), other, false)]);
}

#[test]
fn pods_have_their_service_account_under_both_names() {
    let template: &[&str] = &["spec", "template", "spec"];
    let kinds = [
        ("v1", "Pod", &["spec"][..]),
        ("v1", "PodTemplate", &["template", "spec"]),
        ("v1", "ReplicationController", template),
        ("apps/v1", "DaemonSet", template),
        ("apps/v1", "Deployment", template),
        ("apps/v1", "ReplicaSet", template),
        ("apps/v1", "StatefulSet", template),
        ("batch/v1", "Job", template),
        (
            "batch/v1",
            "CronJob",
            &["spec", "jobTemplate", "spec", "template", "spec"],
        ),
    ];
    let both = json!({"serviceAccount": "b", "serviceAccountName": "b"});
    for (api_version, kind, path) in kinds {
        let pods = |spec: Value| nested(api_version, kind, path, spec);
        let forms = [
            json!({"serviceAccount": "b"}),
            json!({"serviceAccountName": "b"}),
            json!({"serviceAccountName": "b", "serviceAccount": "other"}),
            json!({"serviceAccountName": "", "serviceAccount": "b"}),
        ];
        check(forms.map(|form| (pods(form), pods(both.clone()), false)));
        let none = pods(json!({"serviceAccountName": ""}));
        check([(none.clone(), none, false)]);
    }
    let elsewhere = [
        nested("example.com/v1", "Deployment", template, json!({"serviceAccount": "b"})),
        nested("apps/v1", "Deployment", &["spec"], json!({"serviceAccount": "b"})),
    ];
    check(elsewhere.map(|object| (object.clone(), object, false)));
}

#[test]
fn what_controllers_write_is_left_out() {
    let role = |rest: Value| object("rbac.authorization.k8s.io/v1", "ClusterRole", &rest);
    let selectors = json!({"clusterRoleSelectors": []});
    let whole = |rules: Value| role(json!({"aggregationRule": selectors, "rules": rules}));
    let stored = role(json!({ "aggregationRule": selectors }));
    check([
        (whole(json!([])), stored.clone(), true),
        (whole(json!([{"verbs": ["get"]}])), stored.clone(), true),
        (whole(Value::Null), stored, false),
        (
            role(json!({"aggregationRule": null, "rules": []})),
            role(json!({"rules": []})),
            false,
        ),
        (
            deployment(json!({REVISION: "7", "a": "b"})),
            deployment(json!({"a": "b"})),
            true,
        ),
        (
            deployment(json!({REVISION: "7"})),
            nested("apps/v1", "Deployment", &["metadata"], json!({})),
            true,
        ),
    ]);
}

#[test]
fn what_is_null_or_has_no_labels_and_annotations_is_absent() {
    let absent = nested("apps/v1", "Deployment", &["metadata"], json!({}));
    let empty = [Value::Null, json!({}), json!({"a": null})];
    check(empty.map(|annotations| (deployment(annotations), absent.clone(), false)));
    let template = |metadata: Value| nested("apps/v1", "Deployment", &["spec", "template", "metadata"], metadata);
    let ports = |ports: Value| nested("v1", "Service", &["spec", "ports"], ports);
    // A field of a custom resource may be null, and so may a key of data.
    let widget = |annotations: Value| {
        let rest =
            json!({"spec": {"size": null, "metadata": {"labels": {}}}, "metadata": {"annotations": annotations}});
        object("example.com/v1", "Widget", &rest)
    };
    let config = object("v1", "ConfigMap", &json!({"data": {"a": null}}));
    check([
        (
            template(json!({"labels": {}, "annotations": {"a": null}, "creationTimestamp": null})),
            template(json!({})),
            false,
        ),
        (
            ports(json!([{"port": 1, "name": null}, null])),
            ports(json!([{"port": 1}, null])),
            false,
        ),
        (widget(json!({"a": null, "b": "c"})), widget(json!({"b": "c"})), false),
        (config.clone(), config, false),
    ]);
}
