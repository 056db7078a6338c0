//! The differences between documents and the cloud, and their display. No requests are sent here.
//!
//! A change is the merge patch that will be sent, so that exactly what is shown is done. A changed secret is marked,
//! but not shown.

use std::collections::HashMap;
use std::fmt::Write as _;

use anyhow::Result;
use serde_json::{Map, Value};
use similar::{ChangeTag, TextDiff};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{ETag, Path};
use tidewaiter_cloud::models::Kind;

use super::cluster_reports::Made;
use super::impact::Impact;
use super::kinds::SECRETS;
use super::output::yaml;

/// The change of one object.
pub(super) struct Step {
    pub(super) kind: Kind,
    /// Its title for messages.
    pub(super) title: String,
    /// The list that it is in.
    pub(super) list: Path,
    pub(super) change: Change,
}

pub(super) enum Change {
    /// `stand_in` is there for its id until the cloud has given one.
    Create {
        stand_in: String,
        body: Value,
    },
    Update {
        id: String,
        etag: Option<ETag>,
        /// The fields of the patch as they are.
        before: Value,
        patch: Value,
    },
    Delete {
        id: String,
        etag: Option<ETag>,
    },
}

/// Everything that will be done, in order.
#[derive(Default)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// The objects that are as the documents say.
    pub(super) unchanged: Vec<Made>,
    /// The names of the ids in the steps.
    pub(super) names: HashMap<String, String>,
    /// The access that is gained and lost by the steps, if any of them is about that.
    pub(super) impact: Option<Impact>,
}

impl Plan {
    pub(super) fn deletions(&self) -> usize {
        self.count(|change| matches!(change, Change::Delete { .. }))
    }

    fn count(&self, which: impl Fn(&Change) -> bool) -> usize {
        self.steps.iter().filter(|step| which(&step.change)).count()
    }

    /// Every change.
    pub(super) fn changes(&self) -> Result<String> {
        self.steps.iter().map(|step| step.shown(&self.names)).collect()
    }

    /// Every change, how many there are, and who gains and who loses access.
    pub(super) fn shown(&self) -> Result<String> {
        let mut text = self.changes()?;
        let (create, update) = (
            self.count(|change| matches!(change, Change::Create { .. })),
            self.count(|change| matches!(change, Change::Update { .. })),
        );
        let (delete, same) = (self.deletions(), self.unchanged.len());
        let _ = writeln!(
            text,
            "{create} to create, {update} to change, {delete} to delete, {same} unchanged"
        );
        text.extend(self.impact.as_ref().map(Impact::shown));
        Ok(text)
    }
}

impl Step {
    fn shown(&self, names: &HashMap<String, String>) -> Result<String> {
        let title = format!("{} {}", self.kind.name(), printable(&self.title));
        let text = |value: &Value| {
            let mut value = value.clone();
            substitute(&mut value, names);
            without_nulls(&mut value);
            // The line of an empty mapping, `{}`, is of no field.
            let is_empty = value.as_object().is_some_and(Map::is_empty);
            if is_empty { Ok(String::new()) } else { yaml(&value) }
        };
        Ok(match &self.change {
            Change::Create { body, .. } => {
                let body = text(&masked(body, "(not shown)"))?;
                format!("{}\n{}", green(&format!("+ {title}")), lines(&body))
            }
            Change::Delete { id, .. } => red(&format!("- {title} ({id})")) + "\n",
            Change::Update { id, before, patch, .. } => {
                let old = text(&masked(before, "(not shown)"))?;
                let mut after = before.clone();
                json_patch::merge(&mut after, patch);
                let new = text(&masked_where(&after, patch))?;
                format!("~ {title} ({id})\n{}", difference(&old, &new))
            }
        })
    }
}

/// A field that is `null` counts as absent.
fn without_nulls(value: &mut Value) {
    if let Value::Object(map) = value {
        map.retain(|_, value| !value.is_null());
        map.values_mut().for_each(without_nulls);
    }
}

/// The lines that two texts do not share, and those around them.
fn difference(old: &str, new: &str) -> String {
    let diff = TextDiff::from_lines(old, new);
    let mut text = String::new();
    for group in diff.grouped_ops(2) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = printable(change.value().trim_end_matches('\n'));
            let shown = match change.tag() {
                ChangeTag::Delete => red(&format!("  - {line}")),
                ChangeTag::Insert => green(&format!("  + {line}")),
                ChangeTag::Equal => format!("    {line}"),
            };
            text += &shown;
            text.push('\n');
        }
    }
    text
}

fn lines(text: &str) -> String {
    text.lines()
        .map(|line| green(&format!("  + {}", printable(line))) + "\n")
        .collect()
}

pub(super) fn green(text: &str) -> String {
    painted(anstyle::AnsiColor::Green, text)
}

pub(super) fn red(text: &str) -> String {
    painted(anstyle::AnsiColor::Red, text)
}

/// The output stream removes the colours if it is not a terminal.
fn painted(color: anstyle::AnsiColor, text: &str) -> String {
    let style = color.on_default();
    format!("{style}{text}{style:#}")
}

/// `value` with `word` in the place of each secret.
fn masked(value: &Value, word: &str) -> Value {
    match value {
        Value::Object(map) => {
            let mask = |(key, value): (&String, &Value)| {
                let value = if SECRETS.contains(&key.as_str()) {
                    hidden(value, word)
                } else {
                    masked(value, word)
                };
                (key.clone(), value)
            };
            map.iter().map(mask).collect::<Map<_, _>>().into()
        }
        Value::Array(items) => items.iter().map(|item| masked(item, word)).collect(),
        other => other.clone(),
    }
}

/// Like [`masked`]; secrets that `patch` sets are marked as changed.
fn masked_where(value: &Value, patch: &Value) -> Value {
    let mut shown = masked(value, "(not shown)");
    for field in SECRETS {
        if let Some(set) = patch.get(field) {
            json_patch::merge(&mut shown[field], &hidden(set, "(another one, not shown)"));
        }
    }
    shown
}

fn hidden(value: &Value, word: &str) -> Value {
    match value {
        Value::Object(map) => map
            .iter()
            .map(|(key, value)| (key.clone(), hidden(value, word)))
            .collect::<Map<_, _>>()
            .into(),
        Value::Null => Value::Null,
        _ => word.into(),
    }
}

/// The merge patch (RFC 7386) from `before` to `after`; `None` if they are equal. A field that is `null` equals an
/// absent one.
pub(super) fn patch(before: &Value, after: &Value) -> Option<Value> {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            let gone = old
                .iter()
                .filter(|(key, value)| !value.is_null() && new.get(*key).is_none_or(Value::is_null));
            let gone = gone.map(|(key, _)| (key.clone(), Value::Null));
            let set = new
                .iter()
                .filter(|(_, value)| !value.is_null())
                .filter_map(|(key, value)| {
                    let changed = patch(old.get(key).unwrap_or(&Value::Null), value)?;
                    Some((key.clone(), changed))
                });
            let all: Map<String, Value> = gone.chain(set).collect();
            (!all.is_empty()).then(|| all.into())
        }
        // A new empty object is a change of its own.
        (old, new) => (old != new).then(|| new.clone()),
    }
}

/// The fields of `spec` as they are in `object`, without additions of the server to the object and to the rules of a
/// role. A spec that sets no end of access lacks that field, which older servers do not know; an end in `object` is a
/// difference.
pub(super) fn fields_of(object: &Value, spec: &Value) -> Value {
    const ENDS: [&str; 2] = ["expires_at", "user_ends"];
    let fields = spec.as_object().into_iter().flat_map(Map::keys).map(String::as_str);
    let is_only_there = |end: &&str| object.get(*end).is_some() && spec.get(*end).is_none();
    let fields = fields.chain(ENDS.into_iter().filter(is_only_there)).map(|field| {
        let mut value = object.get(field).cloned().unwrap_or(Value::Null);
        if field == "rules" {
            let rules = value
                .as_array_mut()
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut);
            rules.for_each(|rule| rule.retain(|key, _| !["id", "created_at", "updated_at"].contains(&key.as_str())));
        }
        (field.to_owned(), value)
    });
    fields.collect::<Map<_, _>>().into()
}

/// The fields of `object` that `patch` touches.
pub(super) fn touched(object: &Value, patch: &Value) -> Value {
    let fields = patch.as_object().into_iter().flat_map(Map::keys);
    let fields = fields.map(|field| (field.clone(), object.get(field).cloned().unwrap_or(Value::Null)));
    fields.collect::<Map<_, _>>().into()
}

/// Replaces placeholders by ids, also where they are the keys of ends.
pub(super) fn substitute(value: &mut Value, ids: &HashMap<String, String>) {
    match value {
        Value::String(text) => {
            if let Some(id) = ids.get(text) {
                text.clone_from(id);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| substitute(item, ids)),
        Value::Object(map) => {
            map.values_mut().for_each(|value| substitute(value, ids));
            if let Some(Value::Object(ends)) = map.get_mut("user_ends") {
                let named = std::mem::take(ends).into_iter();
                ends.extend(named.map(|(user, end)| (ids.get(&user).cloned().unwrap_or(user), end)));
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
