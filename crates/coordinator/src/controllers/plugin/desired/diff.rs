//! The changes that a version of a plugin would make in the cluster, object by object. Pure.
//!
//! Only paths whose value differs are in it, so fields that the version does not touch, and those that the API server
//! fills in, do not matter. The digest is over all that is shown but the notes: an approval of it is an approval of
//! exactly that.

use std::collections::BTreeMap;
use std::io;

use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tidewaiter_api::containership::PendingVersion;
use tidewaiter_api::names::PLUGIN_LABEL;

use crate::digest::digest;

/// The key of the diff in its Secret.
pub const DIFF_KEY: &str = "diff";
/// The most that is read from a Secret, decompressed: more than any plugin has.
const MOST: usize = 64 << 20;
/// Of metadata, what the API server fills in.
const SERVERS_OWN: [&str; 6] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "selfLink",
];

/// The changes of a version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PluginDiff {
    /// The version.
    pub version: String,
    /// The digest of its manifests.
    pub revision: String,
    /// In the order in which it would be done.
    pub changes: Vec<ObjectChange>,
    /// Set when the differences were too large to be stored and are left out; then, the digest of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest_of_all: Option<String>,
}

/// The change of one object.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectChange {
    /// The operation.
    pub operation: Operation,
    /// The object: `Deployment.apps monitoring/prometheus`.
    pub object: String,
    /// True if its values are secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// The reason why it is shown otherwise than the API server would say, or is left alone.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub note: String,
    /// The differences.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
}

/// The operation on an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Operation {
    /// It is created.
    Create,
    /// It is changed.
    Change,
    /// It is deleted.
    Delete,
    /// The job is created.
    Run,
    /// No operation, because something is in the way.
    Blocked,
}

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// The path: `spec.template.spec.containers[main].image`. Empty for the whole object.
    pub path: String,
    /// The value before; absent if the path is new.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub before: Option<Value>,
    /// The value after; absent if the path goes.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub after: Option<Value>,
}

/// `null` is a value, too.
fn present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(value).map(Some)
}

impl PluginDiff {
    /// The digest that an approval names: the SHA-256 of the revision and of all differences, in hexadecimal digits.
    #[must_use]
    pub fn digest(&self) -> String {
        if let Some(digest) = &self.digest_of_all {
            return digest.clone();
        }
        let changes = self.changes.iter().map(|change| {
            let differences = serde_json::to_string(&change.differences).unwrap_or_default();
            digest([&*format!("{:?}", change.operation), &*change.object, &*differences])
        });
        let changes: Vec<String> = changes.collect();
        digest(
            [&*self.version, &*self.revision]
                .into_iter()
                .chain(changes.iter().map(String::as_str)),
        )
    }

    /// Its summary for the status.
    pub(crate) fn pending(&self) -> PendingVersion {
        let count = |operation| {
            let of_it = self.changes.iter().filter(|change| change.operation == operation);
            u32::try_from(of_it.count()).unwrap_or(u32::MAX)
        };
        PendingVersion {
            version: self.version.clone(),
            revision: self.revision.clone(),
            digest: self.digest(),
            creates: count(Operation::Create),
            changes: count(Operation::Change),
            deletes: count(Operation::Delete),
            jobs: count(Operation::Run),
        }
    }

    /// The diff without its differences.
    pub(crate) fn without_differences(mut self) -> Self {
        self.digest_of_all = Some(self.digest());
        for change in &mut self.changes {
            change.differences.clear();
        }
        self
    }

    /// Serializes the diff as it is stored.
    pub(crate) fn pack(&self) -> Vec<u8> {
        compress_prepend_size(&serde_json::to_vec(self).unwrap_or_default())
    }

    /// Reads what is stored under [`DIFF_KEY`].
    ///
    /// # Errors
    /// When it is something else. The error quotes nothing.
    pub fn unpack(stored: &[u8]) -> Result<Self, io::Error> {
        let text = unpack(stored)?;
        // The error of the parser could quote a value of a Secret.
        serde_json::from_slice(&text).map_err(|_| io::Error::other("it is no diff of a plugin"))
    }
}

/// The digits of the digest that stands for a secret value.
const SHOWN_DIGITS: usize = 12;

impl ObjectChange {
    /// Returns true if nothing but the label of its plugin changes.
    pub(crate) fn is_label_of_plugin(&self) -> bool {
        const LABELS: &str = "metadata.labels";
        self.differences.iter().all(|Difference { path, before, after }| {
            let is_first = || {
                before.is_none()
                    && after
                        .as_ref()
                        .and_then(Value::as_object)
                        .is_some_and(|it| it.len() == 1)
            };
            *path == inside(LABELS, PLUGIN_LABEL) || (path == LABELS && is_first())
        })
    }

    /// The change with a digest in place of each value of a Secret.
    #[must_use]
    pub fn without_secrets(mut self) -> Self {
        if self.secret {
            for difference in &mut self.differences {
                let Difference { path, before, after } = difference;
                for value in before.iter_mut().chain(after) {
                    hide(path, value);
                }
            }
        }
        self
    }
}

/// Replaces the values by digests, but for those that only name the object.
fn hide(path: &str, value: &mut Value) {
    const PUBLIC: [&str; 4] = ["apiVersion", "kind", "type", "immutable"];
    if PUBLIC.contains(&path)
        || is_below("metadata.name", path)
        || is_below("metadata.namespace", path)
        || is_below("metadata.labels", path)
    {
        return;
    }
    match value {
        Value::Object(fields) => fields
            .iter_mut()
            .for_each(|(key, value)| hide(&inside(path, key), value)),
        Value::Array(items) => items.iter_mut().for_each(|item| hide(&format!("{path}[]"), item)),
        secret => *secret = Value::from(format!("SHA-256 {}…", &digest([&*secret.to_string()])[..SHOWN_DIGITS])),
    }
}

fn is_below(place: &str, path: &str) -> bool {
    path.strip_prefix(place)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

/// Decompresses what is in a Secret, which anybody could have written.
pub(crate) fn unpack(stored: &[u8]) -> Result<Vec<u8>, io::Error> {
    let size = stored.first_chunk().map(|size| u32::from_le_bytes(*size) as usize);
    if size.is_none_or(|size| size > MOST) {
        return Err(io::Error::other(
            "it is not compressed as Tidewaiter does it, or too large",
        ));
    }
    decompress_size_prepended(stored).map_err(io::Error::other)
}

/// The object without what the API server fills in.
pub(crate) fn plain(mut object: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|field, _| !SERVERS_OWN.contains(&field.as_str()));
    }
    object
}

/// Of `rendered`, what `manifest` says: the API server gives a new object other values each time, such as addresses.
pub(crate) fn projected(rendered: &Value, manifest: &Value) -> Value {
    match (rendered, manifest) {
        (Value::Object(rendered), Value::Object(manifest)) => {
            let common = manifest.iter().filter_map(|(key, value)| {
                let found = rendered.get(key)?;
                Some((key.clone(), projected(found, value)))
            });
            Value::Object(common.collect())
        }
        (Value::Array(rendered), Value::Array(manifest)) => {
            let common = rendered.iter().zip(manifest);
            common.map(|(found, value)| projected(found, value)).collect()
        }
        _ => rendered.clone(),
    }
}

/// Of the fields of `after`, those with another value in `before`. What only `before` has is not among them.
pub(crate) fn differences_of(before: &Value, after: &Value) -> Vec<Difference> {
    let mut all = differences(&projected(before, after), after);
    all.retain(|difference| difference.after.is_some());
    all
}

/// The paths at which the values differ.
pub(crate) fn differences(before: &Value, after: &Value) -> Vec<Difference> {
    let mut found = Vec::new();
    compare("", Some(before), Some(after), &mut found);
    found
}

fn compare(path: &str, before: Option<&Value>, after: Option<&Value>, found: &mut Vec<Difference>) {
    match (before, after) {
        (Some(Value::Object(before)), Some(Value::Object(after))) => {
            let keys = before
                .keys()
                .chain(after.keys().filter(|key| !before.contains_key(*key)));
            for key in keys {
                compare(&inside(path, key), before.get(key), after.get(key), found);
            }
        }
        (Some(Value::Array(before)), Some(Value::Array(after))) => {
            let items = |list: &[Value]| named(list).unwrap_or_else(|| numbered(list));
            let same_way = named(before).is_some() == named(after).is_some();
            let (before, after) = if same_way {
                (items(before), items(after))
            } else {
                (numbered(before), numbered(after))
            };
            let keys = before
                .keys()
                .chain(after.keys().filter(|key| !before.contains_key(*key)));
            for key in keys {
                compare(&format!("{path}[{}]", key.1), before.get(key), after.get(key), found);
            }
        }
        (before, after) if before != after => found.push(Difference {
            path: path.to_owned(),
            before: before.cloned(),
            after: after.cloned(),
        }),
        _ => {}
    }
}

/// Items of a list by place and name; those with names have the place 0.
type Items = BTreeMap<(usize, String), Value>;

/// The items by their names, if each has one of its own.
fn named(list: &[Value]) -> Option<Items> {
    let items: Option<Items> = list
        .iter()
        .map(|item| Some(((0, item.get("name")?.as_str()?.to_owned()), item.clone())))
        .collect();
    items.filter(|items| items.len() == list.len())
}

fn numbered(list: &[Value]) -> Items {
    let items = list.iter().enumerate();
    items
        .map(|(place, item)| ((place, place.to_string()), item.clone()))
        .collect()
}

fn inside(path: &str, key: &str) -> String {
    let is_plain = !key.is_empty()
        && key
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    match (path.is_empty(), is_plain) {
        (true, true) => key.to_owned(),
        (false, true) => format!("{path}.{key}"),
        (_, false) => format!("{path}[{key:?}]"),
    }
}

/// The manifest as an object in this namespace; without one, it is cluster-scoped.
pub(crate) fn placed(manifest: &Map<String, Value>, namespace: &str) -> Value {
    let mut body = Value::Object(manifest.clone());
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("namespace");
        if !namespace.is_empty() {
            metadata.insert("namespace".to_owned(), Value::from(namespace));
        }
    }
    body
}

#[cfg(test)]
mod tests;
