//! The Kubernetes objects in files of manifests: a list is its items, and what `kubectl get -o yaml` exports can be
//! applied.

use std::mem;

use anyhow::{Result, bail};
use serde_json::Value;

/// The fields that the API server adds to `metadata`, and accepts from nobody. With any of the first three an object is
/// exported.
const ADDED: [&str; 6] = [
    "managedFields",
    "resourceVersion",
    "uid",
    "creationTimestamp",
    "generation",
    "selfLink",
];

/// The document, in whose groups a list is its items.
///
/// # Errors
/// As [`objects`].
pub(super) fn groups(mut document: Value) -> Result<Value> {
    let groups = document.get_mut("manifests").and_then(Value::as_array_mut);
    for group in groups.into_iter().flatten().filter_map(Value::as_array_mut) {
        *group = objects(mem::take(group))?;
    }
    Ok(document)
}

/// The objects, where a list is its items. Without what the API server added to an exported object, its status
/// included.
///
/// # Errors
/// If an item of a list is empty, which kubectl refuses, too. It skips an empty document.
pub(super) fn objects(documents: Vec<Value>) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for document in documents {
        match items(document) {
            Ok(items) => {
                if let Some(place) = items.iter().position(Value::is_null) {
                    bail!("item {} of a list is empty: remove it, or write an object", place + 1);
                }
                all.extend(objects(items)?);
            }
            Err(object) => all.push(imported(object)),
        }
    }
    Ok(all)
}

/// The items of a list such as `List` or `RoleList`; otherwise the object.
fn items(mut document: Value) -> Result<Vec<Value>, Value> {
    let text = |field: &str| document.get(field).and_then(Value::as_str).map(str::to_owned);
    let Some((kind, version)) = text("kind").zip(text("apiVersion")) else {
        return Err(document);
    };
    let items = document.get_mut("items").and_then(Value::as_array_mut);
    let (Some(kind), Some(items)) = (kind.strip_suffix("List"), items) else {
        return Err(document);
    };
    // The API names the type of the items only once; `List` has items of any type.
    if !kind.is_empty() {
        for item in items.iter_mut().filter_map(Value::as_object_mut) {
            item.entry("apiVersion").or_insert_with(|| version.clone().into());
            item.entry("kind").or_insert_with(|| kind.into());
        }
    }
    Ok(mem::take(items))
}

fn imported(mut object: Value) -> Value {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) else {
        return object;
    };
    if ADDED[..3].iter().any(|field| metadata.contains_key(*field)) {
        metadata.retain(|field, _| !ADDED.contains(&field.as_str()));
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
    }
    object
}
