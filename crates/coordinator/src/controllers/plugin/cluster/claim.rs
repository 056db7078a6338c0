//! The owner of an object that a plugin wants to have, and the owners of its fields.
//!
//! An object is the plugin's if it has the plugin's label: anyone who sets the label hands the object over. Without it,
//! an object is adopted only if it is known to have been applied for the plugin. A name, or equal labels, prove
//! nothing.
//!
//! A field that two managers own stays when one of them does not apply it any more. So the fields of `kubectl apply`
//! without `--server-side` become ours when an object becomes the plugin's: what a later version leaves out goes then.
//! Source: `k8s.io/client-go/util/csaupgrade`, which `kubectl apply --server-side` uses.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry};
use kube::Error;
use kube::api::{Patch, PatchParams};
use kube::core::ObjectMeta;
use serde_json::{Map, Value, json};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_kit::client::path_segment;

use super::observe::{Claim, Live, Seen};
use super::{Cluster, MANAGER};
use crate::controllers::plugin::desired::{Object, ObjectId, Record, SERVERS_OWN, as_stored, outlast};
use crate::digest::digest;
use crate::mirror::is_id;

/// The plugin that wants to have objects.
#[derive(Clone, Copy)]
pub(crate) struct Claimant<'a> {
    pub(crate) plugin: &'a str,
    pub(crate) record: &'a Record,
    /// True if a plugin of this id exists no more: neither in the cloud nor with an inventory.
    pub(crate) is_gone: &'a (dyn Fn(&str) -> bool + Sync),
}

impl Claimant<'_> {
    /// The owner of the object that has the name of `object`.
    pub(crate) fn judge(&self, id: &ObjectId, object: &Object, metadata: &ObjectMeta, live: Live) -> Seen {
        let labels = metadata.labels.as_ref();
        match labels.and_then(|labels| labels.get(PLUGIN_LABEL)) {
            Some(owner) if owner == self.plugin => Seen::Ours(live),
            Some(owner) if is_id(owner) && (self.is_gone)(owner) => Seen::Adoptable(live, Claim::Orphan(owner.clone())),
            Some(owner) => Seen::OtherPlugin(owner.clone()),
            None if self.is_unlabelled(id, metadata) => Seen::Adoptable(live, Claim::Unlabelled),
            None if self.inherits(object, metadata) => Seen::Adoptable(live, Claim::Inherited),
            None => Seen::Foreign,
        }
    }

    /// The object that has the name of one that the plugin does not want any more, if it was the plugin's.
    pub(crate) fn judge_surplus(&self, id: &ObjectId, metadata: &ObjectMeta, live: Live) -> Option<Seen> {
        let labels = metadata.labels.as_ref();
        match labels.and_then(|labels| labels.get(PLUGIN_LABEL)) {
            Some(owner) => (owner == self.plugin).then_some(Seen::Ours(live)),
            None => self
                .is_unlabelled(id, metadata)
                .then_some(Seen::Adoptable(live, Claim::Unlabelled)),
        }
    }

    /// Returns true if the plugin applied the object without a label. One that somebody deleted and created again has
    /// no fields of ours.
    fn is_unlabelled(&self, id: &ObjectId, metadata: &ObjectMeta) -> bool {
        self.record.applied(id).is_some() && metadata.managed_fields.iter().flatten().any(is_ours)
    }

    /// Returns true if the Go coordinator has applied the manifest. It ran `kubectl apply` and labelled nothing, so
    /// what it leaves is the annotation of that. It counts until a first version is applied to its end: what appears
    /// later was not made by it.
    fn inherits(&self, object: &Object, metadata: &ObjectMeta) -> bool {
        let is_first = self.record.revision().is_empty();
        let applied = last_applied(metadata).filter(|_| is_first);
        let manifest = || object.manifest.value().unwrap_or_default();
        applied.is_some_and(|applied| same_manifest(applied, manifest()))
    }
}

/// Returns true if `applied`, as `kubectl apply` remembers it, is this manifest of a plugin.
fn same_manifest(applied: &str, mut manifest: Map<String, Value>) -> bool {
    let Ok(Value::Object(mut applied)) = serde_json::from_str(applied) else {
        return false;
    };
    // kubectl adds the namespace, as ours does later: the object has been found in it.
    normalize(&mut applied);
    normalize(&mut manifest);
    equal(&Value::Object(applied), &Value::Object(manifest))
}

/// Leaves out what the readers of manifests leave out or add, ours and kubectl.
fn normalize(object: &mut Map<String, Value>) {
    object.remove("status");
    as_stored(object);
    outlast(object);
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    metadata.retain(|field, _| field != "namespace" && !SERVERS_OWN.contains(&field.as_str()));
    if let Some(labels) = metadata.get_mut("labels").and_then(Value::as_object_mut) {
        labels.remove(PLUGIN_LABEL);
    }
    for field in ["labels", "annotations"] {
        if metadata
            .get(field)
            .and_then(Value::as_object)
            .is_some_and(Map::is_empty)
        {
            metadata.remove(field);
        }
    }
}

/// Equality of JSON as Kubernetes understands it: a field that is `null` is absent, and `1.0`, which Go writes as `1`,
/// is `1`.
fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            let present = |fields: &Map<String, Value>| fields.values().filter(|value| !value.is_null()).count();
            let mut fields = one.iter().filter(|(_, value)| !value.is_null());
            present(one) == present(other)
                && fields.all(|(field, value)| other.get(field).is_some_and(|other| equal(value, other)))
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Number(one), Value::Number(other)) => one == other || one.as_f64() == other.as_f64(),
        (one, other) => one == other,
    }
}

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// The API server gives this manager every field that an object had before the first server-side apply, if it kept no
/// record of them.
const BEFORE: &str = "before-first-apply";

/// The manifest that was applied last.
pub(crate) fn last_applied(metadata: &ObjectMeta) -> Option<&str> {
    let annotations = metadata.annotations.as_ref()?;
    annotations.get(LAST_APPLIED).map(String::as_str)
}

/// Returns true if fields of the object belong to `kubectl apply`. An object of the time before managed fields has no
/// record of that.
pub(crate) fn has_fields(metadata: &ObjectMeta) -> bool {
    let entries = metadata.managed_fields.as_deref().unwrap_or_default();
    last_applied(metadata).is_some() && (entries.is_empty() || entries.iter().any(is_kubectls))
}

/// Returns true if `kubectl apply` gave the object the label of its plugin: the manifest had it.
pub(crate) fn has_label(metadata: &ObjectMeta) -> bool {
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
pub(crate) fn moved(metadata: &ObjectMeta, manager: &str, api_version: &str) -> Vec<ManagedFieldsEntry> {
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

impl Cluster {
    /// Makes the fields that `kubectl apply` owns of the object with this uid ours. Nothing else of it changes.
    pub(crate) async fn move_fields(&self, id: &ObjectId, object: &Object, uid: &str) -> Result<(), Error> {
        let kind = self.served(id, &object.version).await?;
        let api = self.api(&kind, id);
        let metadata = api.get_metadata(&path_segment(&id.name)).await?.metadata;
        if metadata.uid.as_deref() != Some(uid) || !has_fields(&metadata) {
            return Ok(());
        }
        let fields = moved(&metadata, MANAGER, &kind.resource.api_version);
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
pub(crate) fn our_fields(meta: &ObjectMeta) -> String {
    let ours = meta.managed_fields.iter().flatten().filter(|entry| is_ours(entry));
    let fields: Vec<String> = ours
        .filter_map(|entry| Some((entry.fields_v1.as_ref()?, &entry.time)))
        .map(|(fields, time)| format!("{} {time:?}", fields.0))
        .collect();
    digest(fields.iter().map(String::as_str))
}

/// Returns true if the entry has the fields that we applied.
pub(crate) fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(MANAGER)
        && entry.operation.as_deref() == Some("Apply")
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// The digest of who wrote which fields of the object when, without its status.
pub(crate) fn writes(meta: &ObjectMeta) -> String {
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

#[cfg(test)]
mod tests {
    mod claim;
    mod kubectl;
}
