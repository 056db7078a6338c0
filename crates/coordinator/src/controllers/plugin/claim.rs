//! The owner of an object that a plugin wants to have. Pure.
//!
//! An object is the plugin's if it has the plugin's label: anyone who sets the label hands the object over. Without it,
//! an object is adopted only if it is known to have been applied for the plugin. A name, or equal labels, prove
//! nothing.

use std::fmt::{self, Debug};

use kube::core::ObjectMeta;
use serde_json::{Map, Value};
use tidewaiter_api::names::PLUGIN_LABEL;

use super::cluster::is_ours;
use super::kubectl::last_applied;
use super::object::{Object, ObjectId};
use super::observed::{Claim, Live, Seen};
use super::record::Record;
use super::release::{SERVERS_OWN, as_stored, outlast};
use crate::mirror::is_id;

/// The plugin that wants to have objects.
#[derive(Clone, Copy)]
pub(super) struct Claimant<'a> {
    pub(super) plugin: &'a str,
    pub(super) record: &'a Record,
    /// True if a plugin of this id exists no more: neither in the cloud nor with an inventory.
    pub(super) is_gone: &'a (dyn Fn(&str) -> bool + Sync),
}

impl Claimant<'_> {
    /// The owner of the object that has the name of `object`.
    pub(super) fn judge(&self, id: &ObjectId, object: &Object, metadata: &ObjectMeta, live: Live) -> Seen {
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
    pub(super) fn judge_surplus(&self, id: &ObjectId, metadata: &ObjectMeta, live: Live) -> Option<Seen> {
        let labels = metadata.labels.as_ref();
        match labels.and_then(|labels| labels.get(PLUGIN_LABEL)) {
            Some(owner) => (owner == self.plugin).then_some(Seen::Ours(live)),
            None => self
                .is_unlabelled(id, metadata)
                .then_some(Seen::Adoptable(live, Claim::Unlabelled)),
        }
    }

    /// Returns true if the plugin applied the object without a label.
    fn is_unlabelled(&self, id: &ObjectId, metadata: &ObjectMeta) -> bool {
        self.record.applied(id).is_some() && is_applied_by_us(metadata)
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

impl Debug for Claimant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimant")
            .field("plugin", &self.plugin)
            .finish_non_exhaustive()
    }
}

/// An object that somebody deleted and created again has no fields of ours.
fn is_applied_by_us(metadata: &ObjectMeta) -> bool {
    metadata.managed_fields.iter().flatten().any(is_ours)
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::controllers::plugin::cluster::MANAGER;
    use crate::controllers::plugin::release::Release;
    use crate::controllers::plugin::sent::Sent;

    const PLUGIN: &str = "cccccccc-0000-4000-8000-000000000001";
    const OTHER: &str = "cccccccc-0000-4000-8000-000000000002";

    fn manifest() -> Value {
        json!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w", "creationTimestamp": null},
            "spec": {"size": 1.0, "names": ["a", "b"], "none": null}, "status": {"ready": false}})
    }

    fn release() -> Release {
        Release::read(PLUGIN, "1.0.0", &Sent::from(&json!({"manifests": [[manifest()]]})), &[]).unwrap()
    }

    fn live() -> Live {
        Live::created("u".to_owned(), "ours".to_owned())
    }

    /// The owner of an object with this metadata.
    fn judged(record: &Record, metadata: Value) -> Seen {
        let release = release();
        let object = &release.groups[0][0];
        let claimant = Claimant {
            plugin: PLUGIN,
            record,
            is_gone: &|plugin| plugin != OTHER,
        };
        let metadata = serde_json::from_value(metadata).unwrap();
        claimant.judge(&object.id, object, &metadata, live())
    }

    fn applied(manifest: &Value) -> Value {
        json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": manifest.to_string()}})
    }

    /// The manifest as kubectl remembers it, and as Go writes numbers.
    fn remembered() -> Value {
        let mut remembered = manifest();
        remembered["metadata"] = json!({"name": "w", "namespace": "n", "annotations": {}});
        remembered["spec"]["size"] = json!(1);
        remembered
    }

    #[test]
    fn a_label_decides_unless_its_plugin_is_gone() {
        let labelled = |plugin: &str| json!({"labels": {PLUGIN_LABEL: plugin}});
        let gone = "cccccccc-0000-4000-8000-000000000003";
        for (plugin, expected) in [
            (PLUGIN, Seen::Ours(live())),
            (OTHER, Seen::OtherPlugin(OTHER.to_owned())),
            (gone, Seen::Adoptable(live(), Claim::Orphan(gone.to_owned()))),
            // No plugin ever had this id.
            ("of-a-person", Seen::OtherPlugin("of-a-person".to_owned())),
        ] {
            assert_eq!(judged(&Record::default(), labelled(plugin)), expected);
        }
    }

    #[test]
    fn what_the_go_coordinator_applied_is_known_by_the_manifest() {
        let judge = |manifest: &Value| judged(&Record::default(), applied(manifest));
        assert_eq!(judge(&remembered()), Seen::Adoptable(live(), Claim::Inherited));
        let changes: [fn(&mut Value); 6] = [
            |it| it["spec"]["size"] = json!(2),
            |it| it["spec"]["names"] = json!(["a"]),
            |it| it["spec"]["more"] = json!(1),
            |it| it["metadata"]["labels"] = json!({"a": "b"}),
            |it| it["metadata"]["name"] = json!("v"),
            |it| it["apiVersion"] = json!("example.com/v1beta1"),
        ];
        for change in changes {
            let mut other = remembered();
            change(&mut other);
            assert_eq!(judge(&other), Seen::Foreign, "{other}");
        }
        for nothing in [
            json!({}),
            json!({"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "["}}),
        ] {
            assert_eq!(judged(&Record::default(), nothing), Seen::Foreign);
        }
        // Only what is there before the first version.
        let mut record = Record::default();
        let plugin = serde_json::from_value(json!({"id": PLUGIN, "version": "1.0.0"})).unwrap();
        record.finish(&plugin, &release());
        assert_eq!(judged(&record, applied(&remembered())), Seen::Foreign);
    }

    #[test]
    fn what_the_plugin_applied_stays_its_own_without_the_label() {
        let release = release();
        let object = &release.groups[0][0];
        let mut record = Record::default();
        record.expect(object.id.clone(), &object.version, 0);
        let fields = |manager: &str| json!({"managedFields": [{"manager": manager, "operation": "Apply", "fieldsV1": {"f:spec": {}}}]});
        // It was never applied.
        assert_eq!(judged(&record, fields(MANAGER)), Seen::Foreign);
        record.apply(&object.id, &object.digest, "ours".to_owned());
        assert_eq!(
            judged(&record, fields(MANAGER)),
            Seen::Adoptable(live(), Claim::Unlabelled)
        );
        // Another object of the name.
        assert_eq!(judged(&record, fields("kubectl")), Seen::Foreign);
    }
}
