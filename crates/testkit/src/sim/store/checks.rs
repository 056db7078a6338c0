//! The checks of a request before it changes anything.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Key, Store, Stored};
use crate::sim::status::Refused;

impl Store {
    pub(super) fn resource(&self, key: &Key) -> String {
        self.kinds[key.kind].resource()
    }

    pub(super) fn existing(&self, key: &Key) -> Result<Arc<Stored>, Refused> {
        let found = self.objects.get(key).cloned();
        found.ok_or_else(|| Refused::not_found(&self.resource(key), &key.name))
    }

    /// Fails unless the object has the uid and the version that a request names, if it names any.
    pub(super) fn check_preconditions(&self, key: &Key, there: &Stored, wanted: &Value) -> Result<(), Refused> {
        let differs = |field: &str| {
            let wanted = wanted[field].as_str().filter(|text| !text.is_empty());
            wanted.is_some_and(|wanted| wanted != there.meta(field))
        };
        if differs("uid") {
            let why = "Precondition failed: UID in precondition does not match UID in object meta";
            return Err(Refused::conflict(&self.resource(key), &key.name, why));
        }
        if differs("resourceVersion") {
            return Err(Refused::changed(&self.resource(key), &key.name));
        }
        Ok(())
    }

    pub(super) fn check_namespace(&self, key: &Key) -> Result<(), Refused> {
        if key.namespace.is_empty() {
            return Ok(());
        }
        let Some(namespaces) = self.kind("", "namespaces") else {
            return Ok(());
        };
        let place = Key::new(namespaces, "", &key.namespace);
        if self.existing(&place)?.is_being_deleted() {
            let message = format!(
                "{} \"{}\" is forbidden: unable to create new content in namespace {} because it is being terminated",
                self.resource(key),
                key.name,
                key.namespace,
            );
            return Err(Refused::new(403, "Forbidden", message));
        }
        Ok(())
    }

    /// Gives `body` its type, its namespace and metadata of its own; fails when it says something else.
    pub(super) fn check_type(&self, key: &Key, body: &mut Value) -> Result<(), Refused> {
        let kind = &self.kinds[key.kind];
        let Some(fields) = body.as_object_mut() else {
            return Err(Refused::bad_request("the body is not an object"));
        };
        for (field, own) in [("apiVersion", kind.api_version()), ("kind", kind.name.clone())] {
            let stated = fields.entry(field).or_insert_with(|| own.clone().into());
            if *stated != own {
                return Err(Refused::bad_request(format!(
                    "{field} in the data ({stated}) is not {own}"
                )));
            }
        }
        let metadata = fields.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
        if kind.namespaced {
            let stated = metadata["namespace"].as_str().unwrap_or_default();
            if !stated.is_empty() && stated != key.namespace {
                return Err(Refused::bad_request(
                    "the namespace of the object does not match the namespace on the URL",
                ));
            }
            metadata["namespace"] = key.namespace.clone().into();
        }
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.remove("managedFields");
        }
        strip_nulls(body);
        Ok(())
    }
}

/// A field that is null is one that is not there.
fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}
