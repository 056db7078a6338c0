//! Prints objects. All text is escaped for terminals, and secrets are omitted unless requested.

use std::io::{self, Write as _};
use std::iter;

use anyhow::{Context as _, Result};
use comfy_table::ContentArrangement;
use comfy_table::presets::NOTHING;
use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;
use tidewaiter_api::values::{escape_hidden, printable};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::{Clock as _, SystemClock};

use super::cluster_reports;
use super::kinds::SECRETS;
use super::names::Names;
use super::session::Session;
use super::{ending, upgrades};
use crate::ages;
use crate::cli::CloudFormat;

/// The column that a table for people shows as an age.
const CREATED: &str = "created_at";

/// Prints objects of a kind.
pub(super) async fn objects(session: &Session, format: &CloudFormat, kind: Kind, found: &[Value]) -> Result<()> {
    let columns = kind.facts().columns;
    if kind == Kind::Upgrade {
        let rows: Vec<Value> = found.iter().map(upgrades::row).collect();
        let shown = if is_table(format) { &rows[..] } else { found };
        // Nothing else names it.
        let columns: Vec<&str> = iter::once("id").chain(columns.iter().copied()).collect();
        return list(session, format, kind.name(), &columns, shown).await;
    }
    if kind == Kind::Cluster {
        let rows: Vec<Value> = found.iter().map(cluster_reports::row).collect();
        let shown = if is_table(format) { &rows[..] } else { found };
        let columns = columns.iter().copied().chain(cluster_reports::COLUMNS);
        let columns: Vec<&str> = columns.chain(["created_at", "id"]).collect();
        return list(session, format, kind.name(), &columns, shown).await;
    }
    let is_timed = columns.iter().any(|column| is_time(column) && *column != "expires_at");
    let columns = columns.iter().copied();
    let columns = columns.chain((!is_timed).then_some("created_at")).chain(["id"]);
    let columns: Vec<&str> = columns.collect();
    let mut shown = found.to_vec();
    if matches!(format, CloudFormat::Table) {
        ending::mark(&mut shown, SystemClock.now());
    }
    list(session, format, kind.name(), &columns, &shown).await
}

/// Prints rows, in a table with names in the place of the ids of other objects.
pub(super) async fn list(
    session: &Session,
    format: &CloudFormat,
    kind: &str,
    columns: &[&str],
    found: &[Value],
) -> Result<()> {
    if !is_table(format) {
        return rows(format, kind, columns, found);
    }
    let mut shown = found.to_vec();
    let names = Names::new(matches!(format, CloudFormat::Wide));
    let columns = names.resolve(session, columns, &mut shown).await;
    rows(format, kind, &columns, &shown)
}

/// Prints rows. In a table, an id that is not the first column is only in a wide one.
pub(crate) fn rows(format: &CloudFormat, kind: &str, columns: &[&str], found: &[Value]) -> Result<()> {
    match format {
        CloudFormat::Table | CloudFormat::Wide => print(&in_format(format, columns, found)),
        CloudFormat::Name => print(&names(kind, found)),
        format => value(format, &Value::from(found)),
    }
}

/// Prints one object: its fields line by line, or in the requested format.
pub(super) fn object(format: &CloudFormat, kind: Kind, found: &Value) -> Result<()> {
    match format {
        CloudFormat::Name => print(&names(kind.name(), std::slice::from_ref(found))),
        format => value(format, found),
    }
}

/// Prints anything as JSON or YAML, or what a template selects of it.
pub(super) fn value(format: &CloudFormat, value: &Value) -> Result<()> {
    let text = match format {
        CloudFormat::Json => json(value)?,
        CloudFormat::JsonPath(template) => template.text(value)?,
        _ => printable_yaml(value)?,
    };
    print(&text)
}

/// Returns the value as JSON with a trailing line feed.
pub(crate) fn json(value: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(value).context("the output as JSON")?;
    Ok(printable_json(&text) + "\n")
}

/// Escapes what must not reach a terminal. The result is the same JSON.
pub(crate) fn printable_json(json: &str) -> String {
    escape_hidden(json, |character| {
        let mut units = [0; 2];
        let units = character.encode_utf16(&mut units).iter();
        units.map(|unit| format!("\\u{unit:04x}")).collect::<Vec<_>>().concat()
    })
}

/// Returns the value as YAML with a trailing line feed.
pub(crate) fn yaml(value: &impl Serialize) -> Result<String> {
    let text = tidewaiter_kit::yaml::to_string(value).context("the output as YAML")?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

/// Returns the value as YAML without what must not reach a terminal: then as JSON, which is YAML, because only in
/// double quotes escapes are read.
pub(crate) fn printable_yaml(value: &impl Serialize) -> Result<String> {
    let escape = |text: &str| escape_hidden(text, |character| format!("\\U{:08x}", u32::from(character)));
    let text = yaml(value)?;
    if escape(&text) == text {
        return Ok(text);
    }
    let text = serde_json::to_string_pretty(value).context("the output as YAML")?;
    Ok(escape(&text) + "\n")
}

/// Returns true for a table.
pub(crate) fn is_table(format: &CloudFormat) -> bool {
    matches!(format, CloudFormat::Table | CloudFormat::Wide)
}

/// The table of some fields of each object: a wide one with ids and exact times, any other for people.
pub(super) fn in_format(format: &CloudFormat, columns: &[&str], rows: &[Value]) -> String {
    if matches!(format, CloudFormat::Wide) {
        return drawn(columns, rows, None);
    }
    let (first, others) = columns.split_at(columns.len().min(1));
    let others = others.iter().filter(|column| **column != "id");
    let columns: Vec<&str> = first.iter().chain(others).copied().collect();
    drawn(&columns, rows, Some(SystemClock::shared().now()))
}

/// The table, with times as seen at `now`, or exact ones.
fn drawn(columns: &[&str], rows: &[Value], now: Option<Timestamp>) -> String {
    let mut table = comfy_table::Table::new();
    table
        .load_style(NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(columns.iter().map(|column| header(column, now.is_some())));
    for row in rows {
        table.add_row(columns.iter().map(|column| printable(&cell(row, column, now))));
    }
    let lines = table.lines();
    lines
        .map(|line| line.strip_prefix(' ').unwrap_or(&line).trim_end().to_owned() + "\n")
        .collect()
}

/// Returns true for a column with times.
fn is_time(column: &str) -> bool {
    column.ends_with("_at") || ["at", "accepted", "expires", "last_seen"].contains(&column)
}

fn header(column: &str, is_relative: bool) -> String {
    if is_relative && column == CREATED {
        return "AGE".to_owned();
    }
    let column = column.strip_suffix("_at").filter(|_| is_relative).unwrap_or(column);
    column.to_uppercase().replace('_', " ")
}

fn cell(row: &Value, column: &str, now: Option<Timestamp>) -> String {
    let value = match row.get(column) {
        None | Some(Value::Null) => return "-".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Object(map)) => map.get("type").and_then(Value::as_str).unwrap_or("…").to_owned(),
        Some(Value::Array(items)) => items.len().to_string(),
        Some(other) => other.to_string(),
    };
    match (ages::read(&value).filter(|_| is_time(column)), now) {
        (None, _) => value,
        (Some(time), None) => time.to_string(),
        (Some(time), Some(now)) if column == CREATED => ages::age(time, now),
        (Some(time), Some(now)) => ages::relative(time, now),
    }
}

/// A time of the API in a readable form.
pub(super) fn time(text: &str) -> Option<String> {
    Some(ages::read(text)?.to_string())
}

/// Kind and id of each, or name where there is no id, one a line.
fn names(kind: &str, found: &[Value]) -> String {
    let ids = found
        .iter()
        .filter_map(|object| object.get("id").or_else(|| object.get("name"))?.as_str());
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

/// Prints a note to standard error, in one line.
pub(super) fn note(text: &str) {
    // Nobody misses it where standard error is closed.
    let _ = writeln!(io::stderr(), "{}", printable(text));
}

/// Writes to standard output; a closed pipe is not an error.
pub(crate) fn print(text: &str) -> Result<()> {
    crate::printed(anstream::stdout().write_all(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_escaped_and_the_value_stays() {
        let value = json!({"na\u{202e}me": "\u{9b}31m: \"a\"", "flag": "\u{1f3f4}\u{e0067}", "accent": "u\u{308}"});
        let (in_json, in_yaml) = (json(&value).unwrap(), printable_yaml(&value).unwrap());
        assert_eq!(serde_json::from_str::<Value>(&in_json).unwrap(), value);
        assert_eq!(tidewaiter_kit::yaml::document(&in_yaml).unwrap(), value);
        for text in [in_json, in_yaml] {
            assert!(!text.contains(['\u{9b}', '\u{202e}', '\u{e0067}']), "{text:?}");
            assert!(text.contains("u\u{308}") && text.contains('\u{1f3f4}'), "{text:?}");
        }
        let plain = json!({"accent": "u\u{308}"});
        assert_eq!(printable_yaml(&plain).unwrap(), "accent: u\u{308}\n");
    }
}
