//! The representation of a row: the fields that clients set, and those that the server sets.

use jiff::Timestamp;

use super::prelude::*;
use crate::models::values::{SshPublicKey, UnixMillis};
use crate::models::{Status, Unknown, UpgradeProgress, parse};
use crate::server::access::organizations::is_locked;
use crate::server::digest::derived;

/// The representation of the object, with credentials only if `secrets`.
///
/// # Errors
/// If its credentials cannot be decrypted.
pub(crate) fn shown(app: &AppState, row: &Row, secrets: bool) -> Result<Map<String, Value>, Error> {
    let mut shown = row.kind.current(row.spec.clone());
    for field in row.kind.facts().generated {
        shown.insert((*field).to_owned(), made_field(row, field));
    }
    match row.kind {
        Kind::Registry => {
            let credentials = if secrets { app.credentials(row)? } else { None };
            shown.insert("credentials".to_owned(), credentials.unwrap_or_else(|| json!({})));
        }
        Kind::Role => {
            let rules = shown.get_mut("rules").and_then(Value::as_array_mut);
            for (place, rule) in rules.into_iter().flatten().enumerate() {
                identify_rule(&row.id, place, rule);
            }
        }
        _ => {}
    }
    Ok(shown)
}

/// The representations of several objects.
pub(super) fn all_shown<'a>(
    app: &AppState,
    rows: impl IntoIterator<Item = &'a Row>,
    secrets: bool,
) -> Result<Vec<Map<String, Value>>, Error> {
    rows.into_iter().map(|row| shown(app, row, secrets)).collect()
}

fn made_field(row: &Row, field: &str) -> Value {
    let or_null = |text: &str| {
        if text.is_empty() {
            Value::Null
        } else {
            Value::from(text)
        }
    };
    match field {
        "id" => or_null(&row.id),
        "created_at" | "added_at" => unix_millis(&row.created_at),
        "updated_at" => unix_millis(&row.updated_at),
        "organization_id" => or_null(&row.organization_id),
        "cluster_id" => or_null(&row.cluster_id),
        "owner_id" | "owner" => or_null(&row.owner_id),
        "node_pool_id" | "user_id" => or_null(&row.parent_id),
        "status" => status(row),
        "locked" => Value::Bool(is_locked(row)),
        "configuration" => json!({ "provider": {}, "resource": {} }),
        "addedAt" => {
            let at: Option<Timestamp> = row.created_at.parse().ok();
            at.map_or(Value::Null, |at| Value::from(at.as_second().to_string()))
        }
        "fingerprint" => {
            let key = row.text("key");
            let key: Option<SshPublicKey> = key.and_then(|key| key.parse().ok());
            key.map_or(Value::Null, |key| Value::from(key.fingerprint().to_string()))
        }
        "ssh_keys" => json!([]),
        "addresses" => json!({}),
        _ => Value::Null,
    }
}

/// A stored time as `created_at`, `updated_at` and `added_at` are written.
pub(super) fn unix_millis(stored: &str) -> Value {
    let time = stored.parse().ok().and_then(UnixMillis::new);
    time.map_or(Value::Null, |time| Value::from(time.to_string()))
}

/// The reported status in the current form: an older version of the server stored what was sent. Only an upgrade has
/// none before the first report.
fn status(row: &Row) -> Value {
    let stored = row.status.as_ref().map(text);
    let stored = stored.as_deref().map(str::as_bytes);
    if row.kind == Kind::Upgrade {
        let progress: Option<UpgradeProgress> = stored.and_then(|stored| parse(stored, Unknown::Ignore).ok());
        return json!(progress);
    }
    let status: Option<Status> = stored.and_then(|stored| parse(stored, Unknown::Ignore).ok());
    json!(status.unwrap_or_default())
}

/// A rule's id is derived from its role, its position and its contents: a changed rule is a different rule.
fn identify_rule(role: &str, place: usize, said: &mut Value) {
    let id = derived(&format!("{role} {place} {said}"));
    if let Some(said) = said.as_object_mut() {
        said.insert("id".to_owned(), Value::from(id.to_string()));
        said.insert("created_at".to_owned(), Value::Null);
        said.insert("updated_at".to_owned(), Value::Null);
    }
}
