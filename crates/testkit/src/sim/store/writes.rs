//! Writes of one object: create, replace, merge patch and server-side apply. A write that changes nothing has no
//! revision.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Done, Key, Store, Stored, finalizers};
use crate::sim::call::{Call, Part, PatchType, Verb};
use crate::sim::ownership::Owners;
use crate::sim::status::Refused;

/// The owner of the fields that a write changes.
enum Owner<'a> {
    /// The manager of an update.
    Manager(&'a str),
    /// As server-side apply has found.
    Applied(Owners),
}

/// Fields of metadata that are the server's to write.
const SERVERS: [&str; 7] = [
    "managedFields",
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

impl Store {
    /// Serves a write of one object.
    pub(in crate::sim) fn write(&mut self, call: &Call) -> Result<Done, Refused> {
        match call.verb {
            Verb::Create => self.create(&call.key(), &call.body),
            Verb::Update => self.update(call),
            Verb::Patch if call.patch == Some(PatchType::Apply) => self.apply(call),
            Verb::Patch => self.merge(call),
            Verb::Delete => self.delete(&call.key(), &call.body),
            Verb::Get | Verb::List | Verb::Watch | Verb::DeleteCollection => {
                unreachable!("{} is not a write of one object", call.verb.as_str())
            }
        }
    }

    /// Creates an object; the name of `place` is not read.
    pub(in crate::sim) fn create(&mut self, place: &Key, body: &Value) -> Result<Done, Refused> {
        let mut body = body.clone();
        self.made += 1;
        let metadata = &body["metadata"];
        let name = match (metadata["name"].as_str(), metadata["generateName"].as_str()) {
            (Some(name), _) if !name.is_empty() => name.to_owned(),
            (_, Some(prefix)) if !prefix.is_empty() => format!("{prefix}{:05x}", self.made),
            _ => {
                return Err(Refused::invalid(
                    "metadata.name: Required value: name or generateName is required",
                ));
            }
        };
        if metadata["resourceVersion"]
            .as_str()
            .is_some_and(|version| !version.is_empty())
        {
            return Err(Refused::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let key = Key {
            name: name.clone(),
            ..place.clone()
        };
        self.check_namespace(&key)?;
        if self.objects.contains_key(&key) {
            return Err(Refused::exists(&self.resource(&key), &name));
        }
        self.check_type(&key, &mut body)?;
        body["metadata"]["name"] = name.into();
        let kind = &self.kinds[key.kind];
        if kind.status
            && !kind.group.is_empty()
            && let Some(fields) = body.as_object_mut()
        {
            fields.remove("status");
        }
        let after = self.insert(&key, None, body, Owners::default());
        Ok(Done {
            key,
            created: true,
            before: None,
            after: Some(after),
            last: None,
        })
    }

    fn update(&mut self, call: &Call) -> Result<Done, Refused> {
        let key = call.key();
        let before = self.existing(&key)?;
        let body = &call.body;
        let stated = |field: &str| body["metadata"][field].as_str().filter(|text| !text.is_empty());
        if stated("name") != Some(key.name.as_str()) {
            return Err(Refused::bad_request(
                "the name of the object does not match the name on the URL",
            ));
        }
        if stated("resourceVersion").is_none() && !self.kinds[key.kind].replaced_unconditionally() {
            return Err(Refused::invalid(
                "metadata.resourceVersion: Invalid value: 0: must be specified for an update",
            ));
        }
        self.check_preconditions(&key, &before, &body["metadata"])?;
        self.replace(&key, &before, body.clone(), call.part, Owner::Manager(call.manager()))
    }

    /// Changes an object in place, its status included.
    pub(in crate::sim) fn edit(&mut self, key: &Key, change: impl FnOnce(&mut Value)) -> Result<Done, Refused> {
        let before = self.existing(key)?;
        let mut value = before.value.clone();
        change(&mut value);
        self.replace(key, &before, value, Part::Whole, Owner::Manager("edit"))
    }

    fn merge(&mut self, call: &Call) -> Result<Done, Refused> {
        let key = call.key();
        let before = self.existing(&key)?;
        self.check_preconditions(&key, &before, &call.body["metadata"])?;
        let mut value = before.value.clone();
        json_patch::merge(&mut value, &call.body);
        self.replace(&key, &before, value, call.part, Owner::Manager(call.manager()))
    }

    fn apply(&mut self, call: &Call) -> Result<Done, Refused> {
        let key = call.key();
        let manager = call.query("fieldManager");
        if manager.is_empty() {
            return Err(Refused::bad_request("fieldManager is required for apply patch"));
        }
        let mut config = call.body.clone();
        self.check_type(&key, &mut config)?;
        let before = self.objects.get(&key).cloned();
        let metadata = &call.body["metadata"];
        match &before {
            Some(before) => self.check_preconditions(&key, before, metadata)?,
            // Whatever version it names, as a real one.
            None if metadata["uid"].is_string() => {
                return Err(Refused::conflict(
                    &self.resource(&key),
                    &key.name,
                    "no existing object was found",
                ));
            }
            None => self.check_namespace(&key)?,
        }
        if let Some(metadata) = config["metadata"].as_object_mut() {
            metadata.retain(|field, _| !SERVERS.contains(&field.as_str()));
        }
        let (mut value, mut owners) = match &before {
            Some(before) => (before.value.clone(), before.owners.clone()),
            None => (json!({"metadata": {"name": key.name}}), Owners::default()),
        };
        if let Some(before) = &before {
            owners.begin(&before.value);
        }
        owners.apply(manager, call.flag("force"), &mut value, &config)?;
        if let Some(before) = before {
            return self.replace(&key, &before, value, call.part, Owner::Applied(owners));
        }
        let after = self.insert(&key, None, value, owners);
        Ok(Done {
            key,
            created: true,
            before: None,
            after: Some(after),
            last: None,
        })
    }

    /// Puts `value` in the place of `before`, as far as a client may change it.
    fn replace(
        &mut self,
        key: &Key,
        before: &Arc<Stored>,
        mut value: Value,
        part: Part,
        owner: Owner<'_>,
    ) -> Result<Done, Refused> {
        self.check_type(key, &mut value)?;
        let old = &before.value;
        match part {
            Part::Status => {
                let mut kept = old.clone();
                copy(&mut kept, &value, "status");
                value = kept;
            }
            Part::Main if self.kinds[key.kind].status => copy(&mut value, old, "status"),
            Part::Main | Part::Whole => {}
        }
        for field in SERVERS {
            copy(&mut value["metadata"], &old["metadata"], field);
        }
        value["metadata"]["name"] = key.name.clone().into();
        let owners = match owner {
            Owner::Manager(manager) => before.owners.updated(manager, old, &value),
            Owner::Applied(owners) => owners,
        };
        let done = |after| Done {
            key: key.clone(),
            created: false,
            before: Some(Arc::clone(before)),
            after,
            last: None,
        };
        if value == *old && owners == before.owners {
            return Ok(done(Some(Arc::clone(before))));
        }
        if before.is_being_deleted() && finalizers(&value).is_empty() {
            let last = self.remove(key, value);
            return Ok(Done { last, ..done(None) });
        }
        if value["spec"] != old["spec"] {
            let generation = old["metadata"]["generation"].as_u64().unwrap_or_default();
            value["metadata"]["generation"] = (generation + 1).into();
        }
        let after = self.insert(key, Some(before), value, owners);
        Ok(done(Some(after)))
    }
}

/// Makes a field of `to` what it is in `from`, absent included.
fn copy(to: &mut Value, from: &Value, field: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(to.insert(field.to_owned(), value.clone())),
        None => drop(to.remove(field)),
    }
}
