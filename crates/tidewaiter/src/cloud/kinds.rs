//! The kinds in documents, and the validation of a document before it is sent.

use serde_json::Value;
use tidewaiter_cloud::models::{InvalidField, Kind};

/// Fields that no table, no diff and no message shows.
pub(super) const SECRETS: [&str; 2] = ["credentials", "password"];

/// The kind that documents call `name`.
pub(super) fn named(name: &str) -> Option<Kind> {
    Kind::resources().find(|kind| kind.name() == name)
}

/// The normalized spec with all fields. It contains credentials unchanged.
pub(super) fn check(kind: Kind, spec: &Value) -> Result<Value, InvalidField> {
    let mut normal = Value::Object(kind.read_value(spec)?.spec);
    if let Some(credentials) = spec.get("credentials").filter(|given| !given.is_null()) {
        normal["credentials"] = credentials.clone();
    }
    Ok(normal)
}
