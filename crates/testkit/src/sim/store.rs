//! The objects of a server and what a request does to them. No I/O, no time of its own, no randomness.
//!
//! Every change has a revision of its own, which becomes the object's resourceVersion, and is kept in the log of its kind: watches,
//! lists that go on at an older revision, and stale lists read the log. A write that changes nothing has no revision.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::call::{Call, Part, PatchType, Verb};
use super::kind::Kind;
use super::ownership::Owners;
use super::status::Refused;

mod deletion;
mod listing;

/// Where an object is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    pub(super) kind: usize,
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Key {
    pub(super) fn new(kind: usize, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }
}

/// One version of an object.
#[derive(Debug)]
pub(super) struct Stored {
    pub(super) value: Value,
    pub(super) owners: Owners,
    text: OnceLock<Bytes>,
}

impl Stored {
    fn new(value: Value, owners: Owners) -> Arc<Self> {
        Arc::new(Self {
            value,
            owners,
            text: OnceLock::new(),
        })
    }

    /// The object as JSON.
    pub(super) fn text(&self) -> &Bytes {
        self.text.get_or_init(|| self.value.to_string().into())
    }

    fn meta(&self, field: &str) -> &str {
        self.value["metadata"][field].as_str().unwrap_or_default()
    }

    fn is_being_deleted(&self) -> bool {
        self.value["metadata"].get("deletionTimestamp").is_some()
    }
}

/// One entry of a log.
#[derive(Debug)]
pub(super) struct Change {
    pub(super) revision: u64,
    /// When it happened, since the server's start.
    pub(super) at: Duration,
    pub(super) key: Key,
    pub(super) before: Option<Arc<Stored>>,
    /// `None` when the object is gone.
    pub(super) after: Option<Arc<Stored>>,
    /// What a watch shows of a deletion: the object as it was, with the revision of the deletion.
    pub(super) last: Arc<Stored>,
}

/// What a write did.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) key: Key,
    pub(super) created: bool,
    pub(super) before: Option<Arc<Stored>>,
    /// `None` when the object is gone.
    pub(super) after: Option<Arc<Stored>>,
    /// An object that is gone, as it is shown for the last time.
    pub(super) last: Option<Arc<Stored>>,
}

impl Done {
    pub(super) fn code(&self) -> u16 {
        if self.created { 201 } else { 200 }
    }
}

#[derive(Debug)]
pub(super) struct Store {
    pub(super) kinds: Vec<Kind>,
    objects: BTreeMap<Key, Arc<Stored>>,
    revision: u64,
    logs: Vec<Vec<Change>>,
    /// Changes up to here are not known any more.
    compacted: u64,
    made: u64,
    /// Since the server's start.
    pub(super) now: Duration,
}

/// Who owns the fields that a write changes.
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
    pub(super) fn new(kinds: Vec<Kind>) -> Self {
        Self {
            logs: kinds.iter().map(|_| Vec::new()).collect(),
            kinds,
            objects: BTreeMap::new(),
            // As an API server that has had a few writes of its own.
            revision: 100,
            compacted: 100,
            made: 0,
            now: Duration::ZERO,
        }
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Arc<Stored>> {
        self.objects.get(key)
    }

    /// The objects of one kind, by namespace and name.
    pub(super) fn of_kind(&self, kind: usize) -> impl Iterator<Item = (&Key, &Arc<Stored>)> {
        self.objects.range(Key::new(kind, "", "")..Key::new(kind + 1, "", ""))
    }

    /// What happened to a kind after a revision; `None` when that is not known any more.
    pub(super) fn log(&self, kind: usize, after: u64) -> Option<&[Change]> {
        let log = &self.logs[kind];
        (after >= self.compacted).then(|| &log[log.partition_point(|change| change.revision <= after)..])
    }

    /// What is known of what happened to a kind.
    pub(super) fn known(&self, kind: usize) -> &[Change] {
        &self.logs[kind]
    }

    /// Forgets what happened until now.
    pub(super) fn compact(&mut self) {
        self.compacted = self.revision;
        self.logs.iter_mut().for_each(Vec::clear);
    }

    /// Serves a write of one object.
    pub(super) fn write(&mut self, call: &Call) -> Result<Done, Refused> {
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

    /// The kind of an object that names its own type.
    pub(super) fn kind_of(&self, object: &Value) -> usize {
        let is_its = |kind: &Kind| object["apiVersion"] == kind.api_version() && object["kind"] == kind.name;
        let place = self.kinds.iter().position(is_its);
        place.unwrap_or_else(|| panic!("the server does not serve {} {}", object["apiVersion"], object["kind"]))
    }

    /// The kind of this plural.
    pub(super) fn plural(&self, plural: &str) -> usize {
        let place = self.kinds.iter().position(|kind| kind.plural == plural);
        place.unwrap_or_else(|| panic!("the server does not serve {plural}"))
    }

    fn resource(&self, key: &Key) -> String {
        self.kinds[key.kind].resource()
    }

    fn existing(&self, key: &Key) -> Result<Arc<Stored>, Refused> {
        let found = self.objects.get(key).cloned();
        found.ok_or_else(|| Refused::not_found(&self.resource(key), &key.name))
    }

    /// Creates an object; the name of `place` is not read.
    pub(super) fn create(&mut self, place: &Key, body: &Value) -> Result<Done, Refused> {
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
    pub(super) fn edit(&mut self, key: &Key, change: impl FnOnce(&mut Value)) -> Result<Done, Refused> {
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
        merge(&mut value, &call.body);
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
            None if metadata["uid"].is_string() || metadata["resourceVersion"].is_string() => {
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

    /// Fails unless the object has the uid and the version that a request names, if it names any.
    fn check_preconditions(&self, key: &Key, there: &Stored, wanted: &Value) -> Result<(), Refused> {
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

    fn check_namespace(&self, key: &Key) -> Result<(), Refused> {
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
    fn check_type(&self, key: &Key, body: &mut Value) -> Result<(), Refused> {
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

    pub(super) fn kind(&self, group: &str, plural: &str) -> Option<usize> {
        let same = |kind: &Kind| kind.group == group && kind.plural == plural;
        self.kinds.iter().position(same)
    }

    /// Stores a version of an object under the next revision.
    fn insert(&mut self, key: &Key, before: Option<&Arc<Stored>>, mut value: Value, owners: Owners) -> Arc<Stored> {
        self.revision += 1;
        let metadata = &mut value["metadata"];
        if before.is_none() {
            metadata["uid"] = format!("uid-{}", self.revision).into();
            metadata["creationTimestamp"] = timestamp(self.now).into();
            metadata["generation"] = 1.into();
        }
        metadata["resourceVersion"] = self.revision.to_string().into();
        if !owners.is_empty() {
            metadata["managedFields"] = owners.managed_fields(&self.kinds[key.kind].api_version());
        }
        let stored = Stored::new(value, owners);
        self.objects.insert(key.clone(), Arc::clone(&stored));
        self.logs[key.kind].push(Change {
            revision: self.revision,
            at: self.now,
            key: key.clone(),
            before: before.cloned(),
            after: Some(Arc::clone(&stored)),
            last: Arc::clone(&stored),
        });
        stored
    }

    /// Takes an object out under the next revision. `last` is how it is shown for the last time.
    fn remove(&mut self, key: &Key, mut last: Value) -> Option<Arc<Stored>> {
        let before = self.objects.remove(key)?;
        self.revision += 1;
        last["metadata"]["resourceVersion"] = self.revision.to_string().into();
        let last = Stored::new(last, Owners::default());
        self.logs[key.kind].push(Change {
            revision: self.revision,
            at: self.now,
            key: key.clone(),
            before: Some(before),
            after: None,
            last: Arc::clone(&last),
        });
        Some(last)
    }
}

/// A time of the server, as metadata shows it.
pub(super) fn timestamp(since_start: Duration) -> String {
    let seconds = i64::try_from(since_start.as_secs()).unwrap_or(i64::MAX);
    Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX).to_string()
}

fn finalizers(value: &Value) -> &[Value] {
    value["metadata"]["finalizers"].as_array().map_or(&[], Vec::as_slice)
}

/// Makes a field of `to` what it is in `from`, absent included.
fn copy(to: &mut Value, from: &Value, field: &str) {
    let Some(to) = to.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(to.insert(field.to_owned(), value.clone())),
        None => drop(to.remove(field)),
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

/// A merge patch (RFC 7396).
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    for (field, value) in fields {
        if !value.is_null() {
            merge(&mut target[field.as_str()], value);
        } else if let Some(target) = target.as_object_mut() {
            target.remove(field);
        }
    }
}
