//! Whether an object has exactly the fields that an apply would give it. Pure.
//!
//! Two halves: every applied field is there with its value, and every field that our last apply owned is still applied, so that none is
//! left behind. Source of the second: the Kubernetes documentation, "Server-Side Apply", field `managedFields` (`fieldsV1`).

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Resource;
use serde::Serialize;
use serde_json::{Map, Value};

/// What `body` repeats of the object itself.
const IDENTITY: [&str; 2] = ["apiVersion", "kind"];
const IDENTITY_METADATA: [&str; 4] = ["name", "namespace", "uid", "resourceVersion"];

pub(super) fn has_our_fields<K: Resource + Serialize>(manager: &str, body: &Value, cached: &K) -> bool {
    let ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(manager) && entry.operation.as_deref() == Some("Apply")
    };
    let entry = cached.meta().managed_fields.iter().flatten().find(ours);
    let Some(owned) = entry.and_then(|entry| entry.fields_v1.as_ref()) else {
        return false;
    };
    let Ok(present) = serde_json::to_value(cached) else {
        return false;
    };
    let mut applied = body.clone();
    if let Some(fields) = applied.as_object_mut() {
        fields.retain(|field, _| !IDENTITY.contains(&field.as_str()));
    }
    if let Some(fields) = applied.get_mut("metadata").and_then(Value::as_object_mut) {
        fields.retain(|field, _| !IDENTITY_METADATA.contains(&field.as_str()));
    }
    is_part(&applied, &present) && covers(&applied, &owned.0)
}

/// Whether everything in `part` is in `whole`. Elements of a list are matched by place or, where they have names, by name.
fn is_part(part: &Value, whole: &Value) -> bool {
    match (part, whole) {
        (Value::Null, _) => true,
        (Value::Object(part), _) if part.is_empty() => true,
        (Value::Object(part), Value::Object(whole)) => part
            .iter()
            .all(|(key, value)| value.is_null() || whole.get(key).is_some_and(|whole| is_part(value, whole))),
        (Value::Array(part), Value::Array(whole)) if part.iter().all(|element| element.get("name").is_some()) => {
            part.iter().all(|element| {
                whole
                    .iter()
                    .any(|other| other.get("name") == element.get("name") && is_part(element, other))
            })
        }
        (Value::Array(part), Value::Array(whole)) => {
            part.len() == whole.len() && part.iter().zip(whole).all(|(part, whole)| is_part(part, whole))
        }
        (part, whole) => part == whole,
    }
}

/// Whether `applied` has every field of `managed`, which is in the form of `fieldsV1`.
fn covers(applied: &Value, managed: &Value) -> bool {
    let Some(managed) = managed.as_object() else {
        return true;
    };
    managed.iter().all(|(path, below)| match path.split_once(':') {
        Some(("f", field)) => applied.get(field).is_some_and(|value| covers(value, below)),
        Some(("k", keys)) => element(applied, keys).is_some_and(|element| covers(element, below)),
        Some(("v", value)) => {
            let value: Option<Value> = serde_json::from_str(value).ok();
            value.is_some_and(|value| applied.as_array().is_some_and(|all| all.contains(&value)))
        }
        // "." is the field itself; a place in a list ("i:0") is only used by lists that are replaced whole.
        _ => true,
    })
}

/// The element of a list that has these keys.
fn element<'a>(list: &'a Value, keys: &str) -> Option<&'a Value> {
    let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
    let has_keys = |element: &&Value| keys.iter().all(|(key, value)| element.get(key) == Some(value));
    list.as_array()?.iter().find(has_keys)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ServiceAccount;
    use serde_json::json;

    use super::*;

    const MANAGER: &str = "tidewaiter/test";

    fn cached() -> Value {
        json!({
            "metadata": {
                "name": "s", "namespace": "n", "uid": "u", "labels": {"ours": "1", "theirs": "2"},
                "managedFields": [{"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:ours": {}}},
                    "f:imagePullSecrets": {"k:{\"name\":\"a\"}": {".": {}, "f:name": {}}},
                }}],
            },
            "imagePullSecrets": [{"name": "admins"}, {"name": "a"}],
        })
    }

    fn desired() -> Value {
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s", "namespace": "n", "labels": {"ours": "1"}},
            "imagePullSecrets": [{"name": "a"}]})
    }

    fn same(desired: &Value, cached: &Value) -> bool {
        let cached: ServiceAccount = serde_json::from_value(cached.clone()).unwrap();
        has_our_fields(MANAGER, desired, &cached)
    }

    #[test]
    fn what_others_added_is_no_difference() {
        assert!(same(&desired(), &cached()));
    }

    #[test]
    fn each_difference_is_one() {
        let with = |change: &dyn Fn(&mut Value, &mut Value)| {
            let (mut desired, mut cached) = (desired(), cached());
            change(&mut desired, &mut cached);
            same(&desired, &cached)
        };
        assert!(!with(
            &|_, cached| cached["metadata"]["labels"]["ours"] = json!("edited")
        ));
        assert!(!with(
            &|_, cached| cached["imagePullSecrets"] = json!([{"name": "admins"}])
        ));
        assert!(!with(&|desired, _| desired["metadata"]["labels"]["new"] = json!("x")));
        assert!(
            !with(&|desired, _| desired["imagePullSecrets"] = json!([])),
            "one that we applied is given up"
        );
        assert!(
            !with(&|desired, _| desired["metadata"]["labels"] = json!({})),
            "a label that we applied is given up"
        );
        assert!(
            !with(&|_, cached| cached["metadata"]["managedFields"] = json!([])),
            "it is not ours yet"
        );
        let updated = |cached: &mut Value| cached["metadata"]["managedFields"][0]["operation"] = json!("Update");
        assert!(!with(&|_, cached| updated(cached)), "it was not applied");
    }

    #[test]
    fn lists_without_names_are_compared_whole() {
        assert!(is_part(
            &json!({"verbs": ["get"]}),
            &json!({"verbs": ["get"], "more": 1})
        ));
        assert!(!is_part(&json!({"verbs": ["get"]}), &json!({"verbs": ["get", "list"]})));
        assert!(covers(
            &json!({"finalizers": ["a"]}),
            &json!({"f:finalizers": {".": {}, "v:\"a\"": {}}})
        ));
        assert!(!covers(
            &json!({"finalizers": ["b"]}),
            &json!({"f:finalizers": {".": {}, "v:\"a\"": {}}})
        ));
    }
}
