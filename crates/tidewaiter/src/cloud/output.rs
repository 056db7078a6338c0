//! Prints objects. All text is escaped for terminals, and secrets are omitted unless requested.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result};
use comfy_table::ContentArrangement;
use comfy_table::presets::NOTHING;
use jiff::Timestamp;
use serde_json::Value;
use tidewaiter_api::values::printable;
use tidewaiter_cloud::models::Kind;

use super::kinds::SECRETS;
use super::upgrades;
use crate::cli::CloudFormat;

/// Prints objects of a kind.
pub(super) fn objects(format: CloudFormat, kind: Kind, found: &[Value]) -> Result<()> {
    match format {
        CloudFormat::Table => {
            let columns: Vec<&str> = std::iter::once("id")
                .chain(kind.facts().columns.iter().copied())
                .collect();
            let rows: Vec<Value>;
            let found = if kind == Kind::Upgrade {
                rows = found.iter().map(upgrades::row).collect();
                &rows
            } else {
                found
            };
            print(&table(&columns, found))
        }
        CloudFormat::Name => print(&names(kind.name(), found)),
        _ => value(format, &Value::from(found)),
    }
}

/// Prints one object: its fields line by line, or in the requested format.
pub(super) fn object(format: CloudFormat, kind: Kind, found: &Value) -> Result<()> {
    match format {
        CloudFormat::Name => print(&names(kind.name(), std::slice::from_ref(found))),
        CloudFormat::Table => value(CloudFormat::Yaml, found),
        _ => value(format, found),
    }
}

/// Prints anything as JSON or YAML.
pub(super) fn value(format: CloudFormat, value: &Value) -> Result<()> {
    let text = match format {
        CloudFormat::Json => serde_json::to_string_pretty(value).context("the output as JSON")? + "\n",
        _ => yaml(value)?,
    };
    print(&text)
}

/// Returns the value as YAML with a trailing line feed.
pub(crate) fn yaml(value: &Value) -> Result<String> {
    let text = tidewaiter_kit::yaml::to_string(value).context("the output as YAML")?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Prints some fields of each object.
pub(crate) fn table(columns: &[&str], rows: &[Value]) -> String {
    let mut table = comfy_table::Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|column| column.to_uppercase().replace('_', " ")));
    for row in rows {
        table.add_row(columns.iter().map(|column| printable(&cell(row, column))));
    }
    let lines = table.lines();
    lines
        .map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned() + "\n")
        .collect()
}

fn cell(row: &Value, column: &str) -> String {
    match row.get(column) {
        None | Some(Value::Null) => "-".to_owned(),
        Some(Value::String(text)) if column.ends_with("_at") => time(text).unwrap_or_else(|| text.clone()),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(map)) => map.get("type").and_then(Value::as_str).unwrap_or("…").to_owned(),
        Some(Value::Array(items)) => items.len().to_string(),
        Some(other) => other.to_string(),
    }
}

/// Milliseconds since 1970, the form of times in the API, in a readable form.
pub(super) fn time(text: &str) -> Option<String> {
    let time = Timestamp::from_millisecond(text.parse().ok()?).ok()?;
    Some(time.to_string())
}

/// Kind and id of each, one a line.
pub(super) fn names(kind: &str, found: &[Value]) -> String {
    let ids = found.iter().filter_map(|object| object.get("id")?.as_str());
    ids.map(|id| printable(&format!("{kind}/{id}")) + "\n").collect()
}

/// Without the fields that hold secrets, on whatever level.
pub(super) fn without_secrets(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, _| !SECRETS.contains(&key.as_str()));
            map.values_mut().for_each(without_secrets);
        }
        Value::Array(items) => items.iter_mut().for_each(without_secrets),
        _ => {}
    }
}

/// Prints a note to standard error.
pub(super) fn note(text: &str) {
    // Nobody misses it where standard error is closed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes to standard output; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<()> {
    crate::printed(anstream::stdout().write_all(text.as_bytes()))
}
