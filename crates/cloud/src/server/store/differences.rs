//! The documents of the audit log: of an update what differs, and of a large value its digest, so that a change costs
//! what it changes and not what the object has.

use std::collections::HashSet;

use serde_json::{Map, Value};
use tidewaiter_signature::sha256;

/// A value whose JSON has more bytes is recorded as its digest.
const LARGE: usize = 4_096;
/// Large values are looked for in the fields of a document and in this many levels below, each of which is serialized
/// once more.
const DEPTH: u32 = 4;

/// Both values without what they share: fields of objects at any depth, and elements of lists. Lists that differ in
/// their order or their duplicates alone are complete.
pub(super) fn differing(before: &Value, after: &Value) -> (Value, Value) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            let (mut first, mut last) = (Map::new(), Map::new());
            let added = after.keys().filter(|key| !before.contains_key(*key));
            for key in before.keys().chain(added) {
                let (old, new) = (before.get(key), after.get(key));
                if old != new {
                    let (old, new) = differing(old.unwrap_or(&Value::Null), new.unwrap_or(&Value::Null));
                    first.insert(key.clone(), old);
                    last.insert(key.clone(), new);
                }
            }
            (first.into(), last.into())
        }
        (Value::Array(old), Value::Array(new)) => {
            let (removed, added) = (without(old, new), without(new, old));
            if removed.is_empty() && added.is_empty() {
                return (before.clone(), after.clone());
            }
            (removed.into(), added.into())
        }
        _ => (before.clone(), after.clone()),
    }
}

/// The elements of `all` that are not in `others`. Texts are compared, because a list may have many thousand elements.
fn without(all: &[Value], others: &[Value]) -> Vec<Value> {
    let others: HashSet<String> = others.iter().map(Value::to_string).collect();
    let differs = |value: &&Value| !others.contains(&value.to_string());
    all.iter().filter(differs).cloned().collect()
}

/// `top` with the fields of `below` that it lacks, at any depth.
pub(super) fn over(top: Value, below: Value) -> Value {
    match (top, below) {
        (Value::Object(mut top), Value::Object(below)) => {
            for (key, value) in below {
                let value = match top.remove(&key) {
                    Some(own) => over(own, value),
                    None => value,
                };
                top.insert(key, value);
            }
            top.into()
        }
        (top, _) => top,
    }
}

/// The text of `document`, in which large values are replaced by `sha256:DIGEST (N bytes)`. Empty without a document.
pub(super) fn recorded(document: Option<Value>) -> String {
    let Some(mut document) = document else {
        return String::new();
    };
    if let Value::Object(fields) = &mut document {
        for value in fields.values_mut() {
            shorten(value, DEPTH);
        }
    }
    document.to_string()
}

/// Returns the length of what `value` has become. Inner values are first, so that an outer one keeps what is small in
/// it.
fn shorten(value: &mut Value, depth: u32) -> usize {
    let whole = value.to_string();
    if whole.len() <= LARGE {
        return whole.len();
    }
    let below = depth.saturating_sub(1);
    let inner: usize = match value {
        Value::Object(fields) if depth > 0 => {
            let fields = fields.iter_mut();
            fields.map(|(key, value)| key.len() + 4 + shorten(value, below)).sum()
        }
        Value::Array(elements) if depth > 0 => elements.iter_mut().map(|value| 1 + shorten(value, below)).sum(),
        _ => usize::MAX,
    };
    if inner <= LARGE {
        return inner;
    }
    let sha256 = sha256(whole.as_bytes());
    *value = Value::from(format!("sha256:{sha256} ({} bytes)", whole.len()));
    value.to_string().len()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_audit_log_has_what_differs() {
        let status = |cluster: &str, nodes: Value| json!({"clusterStatus": cluster, "nodeStatuses": nodes, "nodes": 3});
        for (before, after, first, last) in [
            (Value::Null, json!({"a": 1}), Value::Null, json!({"a": 1})),
            (
                status("InProgress", json!({"a": "Success", "b": "InProgress"})),
                status("InProgress", json!({"a": "Success", "b": "Success", "c": "InProgress"})),
                json!({"nodeStatuses": {"b": "InProgress", "c": null}}),
                json!({"nodeStatuses": {"b": "Success", "c": "InProgress"}}),
            ),
            (
                json!({"users": ["olivia", "max"], "name": "ops"}),
                json!({"users": ["max", "eve", "ada"], "name": "ops"}),
                json!({"users": ["olivia"]}),
                json!({"users": ["eve", "ada"]}),
            ),
            (
                json!({"order": [1, 2]}),
                json!({"order": [2, 1]}),
                json!({"order": [1, 2]}),
                json!({"order": [2, 1]}),
            ),
            (json!({"a": 1}), json!({"a": 1}), json!({}), json!({})),
        ] {
            assert_eq!(differing(&before, &after), (first, last));
        }
    }

    #[test]
    fn a_large_value_is_its_digest() {
        let long = "a".repeat(LARGE + 1);
        let whole = json!({"name": "x", "rules": [{"long": long, "short": 1}], "many": vec!["abcdefgh"; 600]});
        let recorded: Value = serde_json::from_str(&recorded(Some(whole))).unwrap();
        assert_eq!(recorded["name"], "x");
        assert_eq!(recorded["rules"][0]["short"], 1);
        let text = format!("\"{long}\"");
        let sha256 = sha256(text.as_bytes());
        let expected = format!("sha256:{sha256} ({} bytes)", text.len());
        assert_eq!(recorded["rules"][0]["long"], expected);
        assert!(
            recorded["many"].as_str().unwrap().ends_with("(6601 bytes)"),
            "{recorded}"
        );
        assert_eq!(super::recorded(None), "");
    }

    #[test]
    fn the_newer_of_two_differences_is_over_the_older() {
        let (older, newer) = (json!({"nodes": {"a": 1, "b": 1}}), json!({"nodes": {"b": 2, "c": 2}}));
        assert_eq!(over(newer, older), json!({"nodes": {"a": 1, "b": 2, "c": 2}}));
    }
}
