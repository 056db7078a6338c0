//! The fields of an object of the API.

use serde_json::Value;

/// The text of a field; empty if it has none.
pub(super) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list in a field.
pub(super) fn list<'a>(object: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    object.get(field).and_then(Value::as_array).into_iter().flatten()
}
