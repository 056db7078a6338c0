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

#[derive(Clone, Debug, Deserialize, kube::Resource)]
#[resource(inherit = Secret)]
#[serde(deny_unknown_fields)]
struct Credentials {
    metadata: ObjectMeta,
    #[serde(rename = "type")]
    _type: Option<Type>,
    #[serde(rename = "port")]
    _port: Option<u16>,
    #[serde(rename = "hosts", default)]
    _hosts: Vec<std::net::IpAddr>,
    #[serde(rename = "pair")]
    _pair: Option<(u8, Option<bool>)>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    Plain,
    Sealed { _by: String },
}

/// The error about an object of this kind with these fields.
fn error<K: Resource<DynamicType = ()> + DeserializeOwned>(fields: &Value) -> String {
    let mut object = json!({"metadata": {"name": "s"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(fields.as_object().unwrap().clone());
    let guarded: Guarded<K> = serde_json::from_str(&object.to_string()).unwrap();
    guarded.0.map(|_| ()).expect_err("the object decodes").error
}

#[test]
fn the_error_about_an_object_with_secrets_quotes_no_value() {
    for (fields, expected) in [
        (json!({"port": "hunter2"}), "port: expected u16"),
        (json!({"port": 70_000}), "port: expected u16"),
        (json!({"port": -7.5}), "port: expected u16"),
        (json!({"port": ["hunter2"]}), "port: expected u16"),
        (json!({"port": {"a": "hunter2"}}), "port: expected u16"),
        (
            json!({"hosts": ["::1", "hunter2"]}),
            "hosts[1]: this value is not allowed",
        ),
        (json!({"hosts": {"a": "hunter2"}}), "hosts: expected a sequence"),
        (json!({"type": "hunter2"}), "type: expected one of plain, sealed"),
        (json!({"type": {"hunter2": 1}}), "type: expected one of plain, sealed"),
        (json!({"type": ["hunter2"]}), "type: expected an enum"),
        (json!({"type": {"sealed": {}}}), "type.sealed: the field _by is missing"),
        (json!({"pair": [1, "hunter2"]}), "pair[1]: expected a boolean"),
        (
            json!({"pair": [1, null, "hunter2"]}),
            "pair: expected 2 elements in sequence",
        ),
        (
            json!({"hunter2": 1}),
            "hunter2: a field that does not exist; expected one of metadata, type, port, hosts, pair",
        ),
    ] {
        assert_eq!(error::<Credentials>(&fields), expected, "{fields}");
    }
    for fields in [
        json!({"type": "plain", "port": 7, "hosts": ["::1"], "pair": [1, null]}),
        json!({"type": {"sealed": {"_by": "x"}}, "pair": [1, true]}),
    ] {
        let mut object = fields.clone();
        object["metadata"] = json!({"name": "s"});
        let decoded = serde_json::from_value::<Credentials>(object.clone());
        assert!(decoded.is_ok(), "{decoded:?}");
        let text = object.to_string();
        assert_eq!(
            unquoted::error::<Credentials>(&text),
            "the object cannot be decoded",
            "{text}"
        );
    }
}

#[test]
fn no_part_of_a_secret_is_quoted() {
    let last_applied = json!({"metadata": {"name": "s", "annotations": {"last-applied": ["hunter2"]}}});
    let data = json!({"data": {"password": "hunter2, not base64"}});
    for (error, path) in [
        (
            error::<PartialObjectMeta<Secret>>(&last_applied),
            "metadata.annotations.last-applied: ",
        ),
        (error::<Secret>(&last_applied), "metadata.annotations.last-applied: "),
        (error::<Secret>(&data), "data.password: "),
    ] {
        assert!(error.starts_with(path) && !error.contains("hunter2"), "{error}");
    }
    // Kinds without secrets say more.
    let error = error::<Strict>(&json!({"spec": {"podCIDR": 7}}));
    assert!(error.contains("integer `7`"), "{error}");
}
