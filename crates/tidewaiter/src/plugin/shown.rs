//! A diff for people, and as JSON. Nothing of it can control a terminal, and no value of a Secret is in it unless it is
//! wanted.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use similar::{ChangeTag, TextDiff};
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::values::printable;
use tidewaiter_coordinator::controllers::{Difference, ObjectChange, Operation, PluginDiff};

use super::choose::title;
use crate::cloud::{self, yaml};

/// Unchanged lines around those that differ in a text.
const CONTEXT_LINES: usize = 2;

/// The diff as JSON.
pub(super) fn shown_as_json(diff: &PluginDiff, secrets: bool) -> Result<String> {
    let mut value = serde_json::to_value(visible(diff, secrets)).context("the diff as JSON")?;
    value["digest"] = json!(diff.digest());
    cloud::json(&value)
}

/// The diff line by line, with its digest at the end.
pub(super) fn shown(plugin: &Plugin, diff: &PluginDiff, secrets: bool) -> Result<String> {
    let applied = plugin.status.as_ref().map(|status| printable(&status.applied_version));
    let applied = applied.filter(|applied| !applied.is_empty());
    let mut text = format!("{}: version {}", title(plugin), printable(&diff.version));
    match applied {
        Some(applied) => writeln!(text, " in place of {applied}")?,
        None => text += "\n",
    }
    for change in &visible(diff, secrets).changes {
        object(&mut text, change)?;
    }
    if diff.digest_of_all.is_some() {
        text += "The differences are too large to be stored: only the objects are shown.\n";
    }
    let count = |operation| {
        diff.changes
            .iter()
            .filter(|change| change.operation == operation)
            .count()
    };
    writeln!(
        text,
        "{} to create, {} to change, {} to delete, {} jobs to run, {} blocked; digest {}",
        count(Operation::Create),
        count(Operation::Change),
        count(Operation::Delete),
        count(Operation::Run),
        count(Operation::Blocked),
        diff.digest()
    )?;
    Ok(text)
}

fn visible(diff: &PluginDiff, secrets: bool) -> PluginDiff {
    let mut diff = diff.clone();
    if !secrets {
        diff.changes = diff.changes.into_iter().map(ObjectChange::without_secrets).collect();
    }
    diff
}

fn object(text: &mut String, change: &ObjectChange) -> Result<()> {
    let word = match change.operation {
        Operation::Create => "create",
        Operation::Change => "change",
        Operation::Delete => "delete",
        Operation::Run => "run",
        Operation::Blocked => "blocked",
    };
    writeln!(text, "{word} {}", printable(&change.object))?;
    if !change.note.is_empty() {
        writeln!(text, "  # {}", printable(&change.note))?;
    }
    change
        .differences
        .iter()
        .try_for_each(|difference| values(text, difference))
}

fn values(text: &mut String, difference: &Difference) -> Result<()> {
    let Difference { path, before, after } = difference;
    if !path.is_empty() {
        writeln!(text, "  {}", printable(path))?;
    }
    if let (Some(Value::String(before)), Some(Value::String(after))) = (before, after)
        && (before.contains('\n') || after.contains('\n'))
    {
        return lines(text, before, after);
    }
    for (sign, value) in [('-', before), ('+', after)] {
        let Some(value) = value else { continue };
        for line in yaml(value)?.lines() {
            writeln!(text, "  {sign} {}", printable(line))?;
        }
    }
    Ok(())
}

/// Texts of several lines, with the lines around those that differ.
fn lines(text: &mut String, before: &str, after: &str) -> Result<()> {
    let diff = TextDiff::from_lines(before, after);
    for group in diff.grouped_ops(CONTEXT_LINES) {
        for change in group.iter().flat_map(|op| diff.iter_changes(op)) {
            let sign = match change.tag() {
                ChangeTag::Delete => '-',
                ChangeTag::Insert => '+',
                ChangeTag::Equal => ' ',
            };
            let line = change.value();
            writeln!(text, "  {sign} {}", printable(line.trim_end_matches('\n')))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plugin() -> Plugin {
        serde_json::from_value(
            json!({"apiVersion": "containership.io/v3", "kind": "Plugin", "metadata": {"name": "p"},
            "spec": {"id": "p", "type": "metrics", "implementation": "prometheus"},
            "status": {"appliedVersion": "1.0.0"}}),
        )
        .unwrap()
    }

    fn change(operation: Operation, object: &str, differences: Vec<Difference>) -> ObjectChange {
        ObjectChange {
            operation,
            object: object.to_owned(),
            secret: object.starts_with("Secret "),
            note: String::new(),
            differences,
        }
    }

    fn difference(path: &str, before: Value, after: Value) -> Difference {
        let value = |value: Value| Some(value).filter(|value| !value.is_null());
        Difference {
            path: path.to_owned(),
            before: value(before),
            after: value(after),
        }
    }

    #[test]
    fn every_change_is_shown_and_nothing_can_control_the_terminal() {
        let text = |middle: &str| json!(format!("a\nb\nc\n{middle}\ne\nf\ng\n"));
        let mut blocked = change(Operation::Blocked, "ConfigMap default/e\u{1b}[2J", vec![]);
        blocked.note = "in the way \u{1b}[31m".to_owned();
        let diff = PluginDiff {
            version: "2.0.0".to_owned(),
            revision: "ab".to_owned(),
            changes: vec![
                change(
                    Operation::Create,
                    "ConfigMap default/a",
                    vec![difference("", Value::Null, json!({"data": {"k": "v\u{1b}[2J"}}))],
                ),
                change(
                    Operation::Change,
                    "ConfigMap default/b",
                    vec![
                        difference("data.text", text("d"), text("D")),
                        difference("data.gone", json!("x"), Value::Null),
                    ],
                ),
                change(
                    Operation::Change,
                    "Secret default/c",
                    vec![difference(
                        "data.password",
                        json!("aHVudGVyMg=="),
                        json!("aHVudGVyMw=="),
                    )],
                ),
                change(Operation::Delete, "ConfigMap default/d", vec![]),
                blocked,
            ],
            digest_of_all: None,
        };
        let found = shown(&plugin(), &diff, false).unwrap();
        let expected = format!(
            "metrics/prometheus (p): version 2.0.0 in place of 1.0.0
create ConfigMap default/a
  + data:
  +   k: \"v\\u{{1b}}[2J\"
change ConfigMap default/b
  data.text
    b
    c
  - d
  + D
    e
    f
  data.gone
  - x
change Secret default/c
  data.password
  - SHA-256 BEFORE
  + SHA-256 AFTER
delete ConfigMap default/d
blocked ConfigMap default/e\\u{{1b}}[2J
  # in the way \\u{{1b}}[31m
1 to create, 2 to change, 1 to delete, 0 jobs to run, 1 blocked; digest {}
",
            diff.digest()
        );
        let plain = |text: &str| {
            let lines = text.lines().map(|line| match line.split_once("SHA-256 ") {
                Some((start, _)) => format!("{start}SHA-256"),
                None => line.replace("\\\\", "\\").replace("\\e", "\\u{1b}"),
            });
            lines.collect::<Vec<_>>().join("\n")
        };
        assert_eq!(plain(&found), plain(&expected));
        assert!(!found.contains('\u{1b}') && !found.contains("aHVudGVy"), "{found}");
        for (secrets, is_shown) in [(false, false), (true, true)] {
            assert_eq!(
                shown(&plugin(), &diff, secrets).unwrap().contains("aHVudGVyMg=="),
                is_shown
            );
            let json = shown_as_json(&diff, secrets).unwrap();
            assert_eq!(json.contains("aHVudGVyMg=="), is_shown);
            let value: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(value["digest"], diff.digest());
        }
    }
}
