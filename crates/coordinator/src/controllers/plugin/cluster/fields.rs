//! The owners of an object's fields.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ManagedFieldsEntry;
use kube::Error;
use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use serde_json::json;
use tidewaiter_kit::client::path_segment;

use super::super::kubectl;
use super::super::object::{Object, ObjectId};
use super::{Cluster, MANAGER};
use crate::digest::digest;

impl Cluster {
    /// Makes the fields that `kubectl apply` owns of the object with this uid ours. Nothing else of it changes.
    pub(in crate::controllers::plugin) async fn move_fields(
        &self,
        id: &ObjectId,
        object: &Object,
        uid: &str,
    ) -> Result<(), Error> {
        let kind = self.served(id, &object.version).await?;
        let api = self.api(&kind, id);
        let metadata = api.get_metadata(&path_segment(&id.name)).await?.metadata;
        if metadata.uid.as_deref() != Some(uid) || !kubectl::has_fields(&metadata) {
            return Ok(());
        }
        let fields = kubectl::moved(&metadata, MANAGER, &kind.resource.api_version);
        // The API server refuses it if the object has changed since.
        let patch = json!([
            {"op": "replace", "path": "/metadata/resourceVersion", "value": metadata.resource_version},
            {"op": "add", "path": "/metadata/managedFields", "value": fields},
        ]);
        let patch = serde_json::from_value(patch).map_err(Error::SerdeError)?;
        let params = PatchParams {
            field_manager: Some(MANAGER.to_owned()),
            ..PatchParams::default()
        };
        api.patch_metadata(&path_segment(&id.name), &params, &Patch::<()>::Json(patch))
            .await?;
        Ok(())
    }
}

/// The digest of the fields that are ours, and of the time at which we changed them last. The API server takes a field
/// from us when another writer changes or removes it, so the digest changes whenever somebody changes what we applied.
/// The time changes with an apply of ours that changes the object: it shows a late one of an earlier leader, which has
/// other values in the same fields.
pub(super) fn our_fields(meta: &ObjectMeta) -> String {
    let ours = meta.managed_fields.iter().flatten().filter(|entry| is_ours(entry));
    let fields: Vec<String> = ours
        .filter_map(|entry| Some((entry.fields_v1.as_ref()?, &entry.time)))
        .map(|(fields, time)| format!("{} {time:?}", fields.0))
        .collect();
    digest(fields.iter().map(String::as_str))
}

/// Returns true if the entry has the fields that we applied.
pub(in crate::controllers::plugin) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// The digest of who wrote which fields of the object when, without its status.
pub(super) fn writes(meta: &ObjectMeta) -> String {
    let entries = meta.managed_fields.iter().flatten();
    let of_spec = entries.filter(|entry| entry.subresource.as_deref() != Some("status"));
    let writes: Vec<String> = of_spec
        .filter_map(|entry| {
            Some(format!(
                "{:?} {} {:?}",
                entry.manager,
                entry.fields_v1.as_ref()?.0,
                entry.time
            ))
        })
        .collect();
    digest(writes.iter().map(String::as_str))
}
