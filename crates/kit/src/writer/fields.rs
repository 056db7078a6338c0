//! The test that an object has exactly the fields that an apply would give it. Pure.
//!
//! It follows what the API server records of our last apply: every applied field is owned by us and has its value, and
//! every field that we own is still applied, so that none is left behind. Source: the Kubernetes documentation,
//! "Server-Side Apply", field `managedFields` (`fieldsV1`).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use kube::Resource;
use serde::Serialize;
use serde_json::{Map, Value};

use super::manager_of;

/// The fields of `body` that repeat the object itself.
const IDENTITY: [&str; 2] = ["apiVersion", "kind"];
const IDENTITY_METADATA: [&str; 4] = ["name", "namespace", "uid", "resourceVersion"];

pub(super) fn has_our_fields<K: Resource + Serialize>(manager: &str, body: &Value, cached: &K) -> bool {
    let Some(owned) = owned(manager, cached.meta()) else {
        return false;
    };
    let Ok(present) = serde_json::to_value(cached) else {
        return false;
    };
    let mut applied = body.clone();
    if let Some(fields) = applied.as_object_mut() {
        fields.retain(|field, _| !IDENTITY.contains(&field.as_str()));
        if let Some(Value::Object(metadata)) = fields.get_mut("metadata") {
            metadata.retain(|field, _| !IDENTITY_METADATA.contains(&field.as_str()));
            if metadata.is_empty() {
                fields.remove("metadata");
            }
        }
    }
    is_as_applied(&applied, owned, &present)
}

/// True if `controller` applied all of the top-level field `field`, whose value is `value`, and nobody has changed it
/// since. A person can forge that by the name of the field manager, so it proves nothing against one who wants to
/// deceive.
#[must_use]
pub fn has_applied_all_of(controller: &str, meta: &ObjectMeta, field: &str, value: &Value) -> bool {
    let owned = owned(&manager_of(controller), meta).and_then(|owned| owned.get(format!("f:{field}")));
    owned.is_some_and(|owned| is_as_applied(value, owned, value))
}

/// True if `controller` applied the field at this path, as a whole, and nobody has changed it since. What a person can
/// forge about [`has_applied_all_of`] is true of this.
#[must_use]
pub fn has_applied(controller: &str, meta: &ObjectMeta, path: &[&str]) -> bool {
    let mut owned = owned(&manager_of(controller), meta);
    for field in path {
        owned = owned.and_then(|owned| owned.get(format!("f:{field}")));
        // Owned whole, also as a part of an atomic map such as the spec of a User.
        if owned.and_then(Value::as_object).is_some_and(Map::is_empty) {
            return true;
        }
    }
    false
}

/// The fields that the manager applied to the object, in the form of `fieldsV1`.
fn owned<'a>(manager: &str, meta: &'a ObjectMeta) -> Option<&'a Value> {
    let ours = |entry: &&ManagedFieldsEntry| {
        entry.manager.as_deref() == Some(manager)
            && entry.operation.as_deref() == Some("Apply")
            && entry.subresource.as_deref().unwrap_or_default().is_empty()
    };
    let entry = meta.managed_fields.iter().flatten().find(ours)?;
    Some(&entry.fields_v1.as_ref()?.0)
}

/// True if `present` has exactly what `applied` gives it, and `owned` (in the form of `fieldsV1`) names exactly the
/// applied fields: none that we do not apply any more, and none of which another manager has become the owner.
fn is_as_applied(applied: &Value, owned: &Value, present: &Value) -> bool {
    let paths = || owned.as_object().into_iter().flatten().filter(|(path, _)| *path != ".");
    // A value that is owned whole: a scalar, an atomic list or map, an empty map.
    if paths().next().is_none() {
        return applied == present;
    }
    match (applied, present) {
        (Value::Object(applied), Value::Object(present)) => {
            let applied: BTreeMap<_, _> = applied.iter().filter(|(_, value)| !value.is_null()).collect();
            applied.len() == paths().count()
                && paths().all(|(path, below)| {
                    let field = path.strip_prefix("f:").map(str::to_owned).unwrap_or_default();
                    let (applied, present) = (applied.get(&field), present.get(&field));
                    applied
                        .zip(present)
                        .is_some_and(|(applied, present)| is_as_applied(applied, below, present))
                })
        }
        (Value::Array(applied), Value::Array(present)) => {
            applied.len() == paths().count()
                && paths().all(|(path, below)| match path.split_once(':') {
                    Some(("k", keys)) => element(applied, keys)
                        .zip(element(present, keys))
                        .is_some_and(|(applied, present)| is_as_applied(applied, below, present)),
                    Some(("v", value)) => serde_json::from_str(value)
                        .is_ok_and(|value: Value| applied.contains(&value) && present.contains(&value)),
                    _ => false,
                })
        }
        _ => false,
    }
}

/// The element of a list that has these keys.
fn element<'a>(list: &'a [Value], keys: &str) -> Option<&'a Value> {
    let keys: Map<String, Value> = serde_json::from_str(keys).ok()?;
    let has_keys = |element: &&Value| keys.iter().all(|(key, value)| element.get(key) == Some(value));
    list.iter().find(has_keys)
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
    fn an_apply_without_metadata_of_its_own_is_no_difference() {
        let (mut desired, mut cached) = (desired(), cached());
        desired["metadata"] = json!({"name": "s", "namespace": "n"});
        cached["metadata"]["managedFields"][0]["fieldsV1"]
            .as_object_mut()
            .unwrap()
            .remove("f:metadata");
        assert!(same(&desired, &cached));
    }

    #[test]
    fn all_of_a_field_is_ours_until_somebody_changes_adds_or_removes_a_part_of_it() {
        let meta = |owned: &Value| {
            let entry = json!({"manager": MANAGER, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": owned});
            serde_json::from_value::<ObjectMeta>(json!({"name": "o", "managedFields": [entry]})).unwrap()
        };
        let (all, spec) = (json!({"f:spec": {"f:a": {}, "f:b": {}}}), json!({"a": "1", "b": ["x"]}));
        let applied =
            |controller: &str, owned: &Value, spec: &Value| has_applied_all_of(controller, &meta(owned), "spec", spec);
        assert!(applied("test", &all, &spec));
        assert!(!applied("other", &all, &spec));
        assert!(!has_applied_all_of("test", &ObjectMeta::default(), "spec", &spec));
        // A writer that changes or adds a field becomes its owner; one that is removed is left to the default of
        // the decoder.
        assert!(!applied("test", &json!({"f:spec": {"f:a": {}}}), &spec));
        assert!(!applied("test", &all, &json!({"a": "1", "b": ["x"], "c": 1})));
        assert!(!applied("test", &all, &json!({"a": "1"})));
        assert!(!applied("test", &json!({"f:metadata": {}}), &spec));
        let one = |path: &[&str]| has_applied("test", &meta(&all), path);
        assert!(one(&["spec", "a"]) && !one(&["spec", "c"]) && !one(&["spec"]) && !one(&["status"]));
        let atomic = meta(&json!({"f:spec": {}}));
        assert!(has_applied("test", &atomic, &["spec", "a"]) && !has_applied("test", &atomic, &["status"]));
    }

    #[test]
    fn a_list_is_compared_as_it_is_owned() {
        let whole = json!({"subjects": [{"name": "a"}]});
        let owned = json!({"f:subjects": {}});
        assert!(is_as_applied(&whole, &owned, &whole));
        let added = json!({"subjects": [{"name": "a"}, {"name": "intruder"}]});
        assert!(!is_as_applied(&whole, &owned, &added), "a list that is owned whole");
        let taken = json!({"f:other": {}});
        assert!(!is_as_applied(&whole, &taken, &whole), "another manager owns it by now");
        let set = json!({"f:finalizers": {".": {}, "v:\"a\"": {}}});
        let both = json!({"finalizers": ["theirs", "a"]});
        assert!(is_as_applied(&json!({"finalizers": ["a"]}), &set, &both));
        assert!(!is_as_applied(&json!({"finalizers": ["b"]}), &set, &both));
    }
}
