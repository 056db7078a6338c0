//! The metadata of objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Of the object of this name.
pub(crate) fn of(namespace: Option<&str>, name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        ..ObjectMeta::default()
    }
}

/// The part that says which object in which version it is, and whether it is being deleted.
pub(crate) fn identity(meta: ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        name: meta.name,
        namespace: meta.namespace,
        uid: meta.uid,
        resource_version: meta.resource_version,
        deletion_timestamp: meta.deletion_timestamp,
        ..ObjectMeta::default()
    }
}

/// Without what each write changes.
pub(crate) fn unversioned(meta: &ObjectMeta) -> ObjectMeta {
    ObjectMeta {
        resource_version: None,
        managed_fields: None,
        ..meta.clone()
    }
}
