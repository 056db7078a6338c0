//! Server-side apply: which manager owns which fields.
//!
//! The fields of an object are owned once somebody has applied it; what it had before then belongs to
//! `before-first-apply`, as on a real server. A list is one field, but for those whose items the API addresses one by
//! one ([`item_key`]). `managedFields` shows the owners in the form of `fieldsV1`.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use super::status::Refused;

/// The path to one field, its segments as `fieldsV1` has them: `f:name`, `k:{"key":"value"}`, `v:"value"`.
type Path = Vec<String>;

/// The owner of the fields that managers other than the appliers own together.
const BEFORE: &str = "before-first-apply";

/// The suffix of the name of a manager that has not applied but updated.
const UPDATE: &str = " (update)";

/// The fields that each manager owns. Empty until somebody applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Owners(BTreeMap<String, BTreeSet<Path>>);

/// Returns the key of the items of a list, where they are merged one by one.
fn item_key(list: &str) -> Option<&'static str> {
    match list {
        "ownerReferences" => Some("uid"),
        "conditions" => Some("type"),
        "containers" | "initContainers" | "imagePullSecrets" | "secrets" | "volumes" | "env" => Some("name"),
        "finalizers" => Some(""),
        _ => None,
    }
}

/// The segment of an item in a path.
fn item_segment(item: &Value, key: &str) -> String {
    match key {
        "" => format!("v:{item}"),
        key => format!("k:{}", json!({ key: item[key] })),
    }
}

/// The segment of a field in a path.
fn field_segment(name: &str) -> String {
    format!("f:{name}")
}

/// The name of the field that a segment is; empty for an item.
fn field_name(segment: &str) -> &str {
    segment.strip_prefix("f:").unwrap_or_default()
}

impl Owners {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The owners as metadata shows them.
    pub(super) fn managed_fields(&self, api_version: &str) -> Value {
        let entry = |(manager, paths): (&String, &BTreeSet<Path>)| {
            let mut fields = json!({});
            for path in paths {
                let mut place = &mut fields;
                for segment in path {
                    if segment.starts_with("k:") {
                        place[segment]["."] = json!({});
                    }
                    place = &mut place[segment];
                }
                if place.is_null() {
                    *place = json!({});
                }
            }
            let (manager, operation) = match manager.strip_suffix(UPDATE) {
                Some(manager) => (manager, "Update"),
                None if manager == BEFORE => (BEFORE, "Update"),
                None => (manager.as_str(), "Apply"),
            };
            json!({
                "manager": manager, "operation": operation, "apiVersion": api_version, "fieldsType": "FieldsV1", "fieldsV1": fields,
            })
        };
        self.0.iter().map(entry).collect()
    }

    /// The object is applied for the first time: what it has is somebody's.
    pub(super) fn begin(&mut self, value: &Value) {
        if self.0.is_empty() {
            self.0.insert(BEFORE.to_owned(), fields(value));
        }
    }

    /// The owners after a write that is not an apply: what it changed is its manager's alone.
    pub(super) fn updated(&self, manager: &str, before: &Value, after: &Value) -> Self {
        if self.0.is_empty() {
            return Self::default();
        }
        let (old, new) = (fields(before), fields(after));
        let is_changed = |path: &&Path| !old.contains(*path) || field(before, path) != field(after, path);
        let changed: BTreeSet<Path> = new.iter().filter(is_changed).cloned().collect();
        let mut owners = self.clone();
        for owned in owners.0.values_mut() {
            owned.retain(|path| new.contains(path) && !changed.contains(path));
        }
        owners.own(&format!("{manager}{UPDATE}"), changed);
        owners
    }

    /// Applies `config` in the name of `manager`: sets what it says, and removes what this manager alone owned and does
    /// not say any more. Without `force` it fails where another manager owns a field of another value.
    pub(super) fn apply(
        &mut self,
        manager: &str,
        force: bool,
        value: &mut Value,
        config: &Value,
    ) -> Result<(), Refused> {
        let said = fields(config);
        let differs = |path: &&Path| field(value, path) != field(config, path);
        let differing: BTreeSet<Path> = said.iter().filter(differs).cloned().collect();
        let is_taken = |(other, owned): (&String, &BTreeSet<Path>)| {
            let taken = other != manager && differing.iter().any(|path| owned.contains(path));
            taken.then(|| other.clone())
        };
        let taken: Vec<String> = self.0.iter().filter_map(is_taken).collect();
        if !taken.is_empty() && !force {
            let message = format!("Apply failed with conflicts with {}", taken.join(", "));
            return Err(Refused::new(409, "Conflict", message));
        }
        for owned in self.0.values_mut() {
            owned.retain(|path| !differing.contains(path));
        }
        let before = self.0.remove(manager).unwrap_or_default();
        for path in before.difference(&said) {
            if self.0.values().all(|owned| !owned.contains(path)) {
                remove(value, path);
            }
        }
        merge(value, config, None);
        self.own(manager, said);
        Ok(())
    }

    fn own(&mut self, manager: &str, paths: BTreeSet<Path>) {
        self.0.entry(manager.to_owned()).or_default().extend(paths);
        self.0.retain(|_, owned| !owned.is_empty());
    }
}

/// The fields of an object that somebody can own.
fn fields(object: &Value) -> BTreeSet<Path> {
    let mut paths = BTreeSet::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        match name.as_str() {
            "apiVersion" | "kind" => {}
            "metadata" => {
                for part in ["labels", "annotations", "finalizers", "ownerReferences"] {
                    if let Some(value) = value.get(part) {
                        let path = [name, part].map(field_segment).to_vec();
                        collect(value, part, path, &mut paths);
                    }
                }
            }
            _ => collect(value, name, vec![field_segment(name)], &mut paths),
        }
    }
    paths
}

fn collect(value: &Value, name: &str, path: Path, into: &mut BTreeSet<Path>) {
    match (value, item_key(name)) {
        (Value::Object(fields), _) if !fields.is_empty() => {
            for (field, value) in fields {
                collect(value, field, [&path[..], &[field_segment(field)]].concat(), into);
            }
        }
        (Value::Array(items), Some(key)) if !items.is_empty() => {
            for item in items {
                let place = [&path[..], &[item_segment(item, key)]].concat();
                collect(item, "", place, into);
            }
        }
        _ => drop(into.insert(path)),
    }
}

fn field<'a>(object: &'a Value, path: &[String]) -> Option<&'a Value> {
    let mut value = object;
    let mut list = "";
    for segment in path {
        value = match value {
            Value::Array(items) => {
                let key = item_key(list)?;
                items.iter().find(|item| item_segment(item, key) == *segment)?
            }
            _ => value.get(field_name(segment))?,
        };
        list = field_name(segment);
    }
    Some(value)
}

/// Takes a field out, and with it whatever it leaves empty.
fn remove(object: &mut Value, path: &[String]) {
    remove_below(object, path, "");
}

fn remove_below(value: &mut Value, path: &[String], list: &str) {
    let Some((first, rest)) = path.split_first() else {
        return;
    };
    match value {
        Value::Array(items) => {
            let Some(key) = item_key(list) else { return };
            let Some(at) = items.iter().position(|item| item_segment(item, key) == *first) else {
                return;
            };
            // The key of an item goes with the item.
            if !rest.is_empty() && *rest != [field_segment(key)] {
                remove_below(&mut items[at], rest, "");
            }
            let is_bare = |item: &Value| {
                item.as_object()
                    .is_some_and(|fields| fields.keys().all(|field| field == key))
            };
            if rest.is_empty() || is_bare(&items[at]) {
                items.remove(at);
            }
        }
        Value::Object(fields) => {
            let name = field_name(first);
            if !rest.is_empty()
                && let Some(next) = fields.get_mut(name)
            {
                remove_below(next, rest, name);
            }
            let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
            if rest.is_empty() || fields.get(name).is_some_and(is_empty) {
                fields.remove(name);
            }
        }
        _ => {}
    }
}

fn merge(target: &mut Value, config: &Value, list: Option<&str>) {
    match (config, list.and_then(item_key)) {
        (Value::Object(fields), _) => {
            if !target.is_object() {
                *target = Value::Object(Map::new());
            }
            for (field, value) in fields {
                merge(&mut target[field.as_str()], value, Some(field));
            }
        }
        (Value::Array(items), Some(key)) => {
            if !target.is_array() {
                *target = json!([]);
            }
            for item in items {
                let name = item_segment(item, key);
                let Some(there) = target.as_array_mut() else { return };
                match there.iter_mut().find(|there| item_segment(there, key) == name) {
                    Some(there) => merge(there, item, None),
                    None => there.push(item.clone()),
                }
            }
        }
        _ => *target = config.clone(),
    }
}
