//! The cached parts of a `RoleBinding`: those that show that it is as desired, in at most a few kilobytes.
//!
//! An admin of a namespace creates as many `RoleBinding`s with our label as the API server takes, each of up to 1.5 MB:
//! subjects, labels, annotations, owners, names, and fields in the name of our field manager. So each list is cut where
//! it is not ours any more, and a text that is too long to be ours becomes empty. Whatever is cut makes the binding
//! different from each that we write.

use k8s_openapi::api::rbac::v1::RoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use tidewaiter_api::names::MANAGED_LABEL;

/// We write one: two are enough to see that it was edited.
const SUBJECTS: usize = 2;

/// The longest text of ours, in bytes: the name of a `ClusterRole` or of a subject, which are ids of the cloud and a
/// prefix.
const TEXT: usize = 512;

/// The field manager.
const MANAGER: &str = "tidewaiter/authorization-role-binding";

/// We write by applies and by patches.
const ENTRIES: usize = 2;

/// The longest record of what a manager of ours applied, in bytes of JSON. Ours has 200.
const FIELDS: usize = 4096;

/// Returns true if it has a name that a binding of ours can have.
pub(super) fn may_be_ours(binding: &RoleBinding) -> bool {
    binding.metadata.name.as_ref().is_some_and(|name| name.len() <= TEXT)
}

/// Drops the rest.
pub(super) fn prune(binding: &mut RoleBinding) {
    let meta = std::mem::take(&mut binding.metadata);
    let labels = meta.labels.map(|mut labels| {
        labels.retain(|key, _| key == MANAGED_LABEL);
        labels
    });
    binding.metadata = ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        deletion_timestamp: meta.deletion_timestamp,
        labels,
        // That there is one is all that is read of them.
        finalizers: meta
            .finalizers
            .map(|all| all.into_iter().take(1).map(bounded).collect()),
        managed_fields: meta
            .managed_fields
            .map(|all| all.into_iter().filter(is_ours).take(ENTRIES).collect()),
        ..ObjectMeta::default()
    };
    binding.role_ref.name = bounded(std::mem::take(&mut binding.role_ref.name));
    if let Some(subjects) = &mut binding.subjects {
        subjects.truncate(SUBJECTS);
        subjects.shrink_to_fit();
        for subject in subjects {
            subject.name = bounded(std::mem::take(&mut subject.name));
            subject.namespace = subject.namespace.take().map(bounded);
        }
    }
}

fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    let manager = entry.manager.as_deref().unwrap_or_default();
    let fields = || entry.fields_v1.as_ref().map_or(0, |fields| fields.0.to_string().len());
    manager == MANAGER && fields() <= FIELDS
}

fn bounded(text: String) -> String {
    if text.len() <= TEXT { text } else { String::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pruned(binding: Value) -> Value {
        let mut binding: RoleBinding = serde_json::from_value(binding).unwrap();
        prune(&mut binding);
        serde_json::to_value(binding).unwrap()
    }

    fn ours() -> Value {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
            "metadata": {"name": "b", "namespace": "n", "uid": "u", "resourceVersion": "7", "labels": {MANAGED_LABEL: "true"},
                "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/keep"],
                "managedFields": [{"manager": "tidewaiter/authorization-role-binding", "operation": "Apply", "fieldsV1": {"f:subjects": {}}}]},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "containership.io/user_id#u"}],
        })
    }

    #[test]
    fn what_we_write_stays() {
        assert_eq!(pruned(ours()), ours());
    }

    /// In each way in which an admin of a namespace makes one large.
    #[test]
    fn a_large_binding_is_small_and_is_not_as_desired() {
        let long = "x".repeat(300_000);
        let many = |one: &dyn Fn(usize) -> Value| (0..3_500).map(one).collect::<Vec<_>>();
        let named = |number: usize| format!("{number}{}", "x".repeat(200));
        let object = |value: &str| -> Value { (0..3_500).map(|it| (named(it), json!(value))).collect() };
        let fields =
            json!([{"manager": "tidewaiter/authorization-role-binding", "operation": "Apply", "fieldsV1": object("")}]);
        for (path, value, is_edited) in [
            (
                "/subjects",
                json!(many(&|it| json!({"kind": "User", "name": named(it)}))),
                true,
            ),
            ("/subjects/0/name", json!(long), true),
            ("/subjects/0/namespace", json!(long), true),
            ("/roleRef/name", json!(long), true),
            ("/metadata/managedFields", fields, true),
            ("/metadata/managedFields/0/manager", json!("kubectl"), true),
            (
                "/metadata/managedFields",
                json!(many(
                    &|it| json!({"manager": format!("{MANAGER}{it}"), "operation": "Apply"})
                )),
                true,
            ),
            (
                "/metadata/managedFields",
                json!(many(
                    &|_| json!({"manager": MANAGER, "operation": "Apply", "fieldsV1": {"f:subjects": {}}})
                )),
                true,
            ),
            (
                "/metadata/finalizers",
                json!(many(&|it| json!(format!("example.com/{}", named(it))))),
                true,
            ),
            ("/metadata/annotations", object("x"), false),
            (
                "/metadata/ownerReferences",
                json!(many(
                    &|it| json!({"apiVersion": "v1", "kind": "Pod", "name": named(it), "uid": "u"})
                )),
                false,
            ),
            ("/metadata/labels/more", json!(long), false),
        ] {
            let mut binding = ours();
            let (parent, key) = path.rsplit_once('/').unwrap();
            match binding.pointer_mut(path) {
                Some(there) => *there = value,
                None => binding.pointer_mut(parent).unwrap()[key] = value,
            }
            let pruned = pruned(binding);
            assert!(pruned.to_string().len() < 2_000, "{path}");
            assert_eq!(pruned != ours(), is_edited, "{path}");
        }
        assert!(may_be_ours(&serde_json::from_value(ours()).unwrap()));
        let mut named = ours();
        named["metadata"]["name"] = json!(long);
        assert!(!may_be_ours(&serde_json::from_value(named).unwrap()));
    }
}
