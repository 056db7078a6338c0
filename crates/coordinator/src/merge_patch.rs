//! Merge patches with what differs (RFC 7396). The whole could be hundreds of kilobytes.

use serde::Serialize;
use serde_json::Value;

/// The patch that makes `before` as `after`; null for each field that `after` lacks.
pub(crate) fn merge_patch(before: &impl Serialize, after: &impl Serialize) -> Value {
    differences(&json(before), &json(after))
}

fn json(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}

fn differences(before: &Value, after: &Value) -> Value {
    let (Value::Object(before), Value::Object(after)) = (before, after) else {
        return after.clone();
    };
    let gone = before.keys().filter(|key| !after.contains_key(*key));
    let changed = after.iter().filter(|(key, value)| before.get(*key) != Some(value));
    let changed = changed.map(|(key, value)| {
        let patch = before
            .get(key)
            .map_or_else(|| value.clone(), |before| differences(before, value));
        (key.clone(), patch)
    });
    gone.map(|key| (key.clone(), Value::Null)).chain(changed).collect()
}
