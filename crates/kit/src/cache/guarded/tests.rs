use k8s_openapi::api::core::v1::Secret;
use kube::api::WatchEvent;
use kube::core::{ObjectList, PartialObjectMeta};
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = k8s_openapi::api::core::v1::Node)]
struct Strict {
    metadata: ObjectMeta,
    #[serde(rename = "spec")]
    _spec: Spec,
}

#[derive(Clone, Debug, Deserialize)]
struct Spec {
    #[serde(rename = "podCIDR")]
    _pod_cidr: std::net::IpAddr,
}

fn object(name: &str, value: &str) -> serde_json::Value {
    json!({"metadata": {"name": name, "uid": "u"}, "spec": {"podCIDR": value}})
}

#[test]
fn a_bad_object_does_not_fail_its_list() {
    let list = json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"},
        "items": [object("good", "10.0.0.0"), object("bad", "junk"), object("other", "::1")]});
    let list: ObjectList<Guarded<Strict>> = serde_json::from_str(&list.to_string()).unwrap();
    let names: Vec<_> = list
        .items
        .iter()
        .map(|it| (it.meta().name.as_deref().unwrap(), it.0.is_ok()))
        .collect();
    assert_eq!(names, [("good", true), ("bad", false), ("other", true)]);
    let error = &list.items[1].0.as_ref().unwrap_err().error;
    assert!(
        error.starts_with("spec.podCIDR: ") && error.contains("IP address"),
        "{error}"
    );
}

#[test]
fn a_bad_object_does_not_fail_its_watch() {
    let event = format!(r#"{{"type": "MODIFIED", "object": {}}}"#, object("bad", "junk"));
    let WatchEvent::Modified(it) = serde_json::from_str::<WatchEvent<Guarded<Strict>>>(&event).unwrap() else {
        panic!("not a modification")
    };
    assert_eq!(it.meta().uid.as_deref(), Some("u"));
    assert!(it.0.is_err());
}

/// Every client with permission to write an object can write its managed fields, nested to any depth.
fn deep(depth: usize) -> String {
    format!("{}1{}", "{\"f:a\":".repeat(depth), "}".repeat(depth))
}

#[test]
fn an_object_that_is_nested_too_deep_does_not_fail_its_list() {
    for depth in [200, 100_000] {
        let bad = format!(
            r#"{{"metadata": {{"name": "bad"}}, "spec": {{"podCIDR": {}}}}}"#,
            deep(depth)
        );
        let list = format!(
            r#"{{"metadata": {{"resourceVersion": "7"}}, "items": [{bad}, {}]}}"#,
            object("good", "::1")
        );
        let list: ObjectList<Guarded<Strict>> = serde_json::from_str(&list).unwrap();
        let decoded: Vec<_> = list.items.iter().map(|it| it.0.is_ok()).collect();
        assert_eq!(decoded, [false, true], "{depth}");
        assert_eq!(list.items[0].meta().name.as_deref(), Some("bad"));
    }
}

#[test]
fn what_a_type_does_not_read_may_be_nested_as_deep_as_it_likes() {
    let managed = deep(100_000);
    let event = format!(
        r#"{{"type": "ADDED", "object": {{"metadata": {{"name": "n"}}, "spec": {{"podCIDR": "::1", "other": {managed}}}}}}}"#
    );
    let event = serde_json::from_str::<WatchEvent<Guarded<Strict>>>(&event).unwrap();
    assert!(matches!(event, WatchEvent::Added(Guarded(Ok(_)))));
}

/// The error about an object of this kind with these fields.
fn error_about<K: Resource<DynamicType = ()> + DeserializeOwned>(fields: &Value) -> String {
    let mut object = json!({"metadata": {"name": "s"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let guarded: Guarded<K> = serde_json::from_str(&object.to_string()).unwrap();
    guarded.0.map(|_| ()).expect_err("the object decodes").error
}

#[test]
fn no_part_of_a_secret_is_quoted() {
    let last_applied = json!({"metadata": {"name": "s", "annotations": {"last-applied": ["hunter2"]}}});
    let data = json!({"data": {"password": "hunter2, not base64"}});
    for (error, path) in [
        (
            error_about::<PartialObjectMeta<Secret>>(&last_applied),
            "metadata.annotations.last-applied: ",
        ),
        (
            error_about::<Secret>(&last_applied),
            "metadata.annotations.last-applied: ",
        ),
        (error_about::<Secret>(&data), "data.password: "),
        (error_about::<Secret>(&json!({"type": ["hunter2"]})), "type: "),
    ] {
        assert!(error.starts_with(path) && !error.contains("hunter2"), "{error}");
    }
    // Kinds without secrets say more.
    let error = error_about::<Strict>(&json!({"spec": {"podCIDR": 7}}));
    assert!(error.contains("integer `7`"), "{error}");
}
