//! The report of a coordinator, of which a page shows every field: a newer coordinator may report more.

use jiff::Timestamp;
use maud::{Markup, html};
use serde_json::Value;

use super::parts::{ago, badge};

/// The maximum number of items of a list that are shown.
const MAX_ITEMS: usize = 100;

/// A value of a report, with names for its fields.
pub(super) fn tree(value: &Value, now: Timestamp) -> Markup {
    match value {
        Value::Null => html! { span.muted { "none" } },
        Value::Bool(value) => html! { (if *value { "yes" } else { "no" }) },
        Value::Number(number) => html! { (number.to_string()) },
        Value::String(text) if text.parse::<Timestamp>().is_ok() => ago(text, now),
        Value::String(text) => html! { (text) },
        Value::Array(items) if items.is_empty() => html! { span.muted { "none" } },
        Value::Array(items) => html! {
            ul {
                @for item in items.iter().take(MAX_ITEMS) { li { (tree(item, now)) } }
                @if items.len() > MAX_ITEMS { li.muted { "and " (items.len() - MAX_ITEMS) " more" } }
            }
        },
        Value::Object(fields) if fields.is_empty() => html! { span.muted { "none" } },
        Value::Object(fields) => html! {
            dl { @for (name, value) in fields { dt { (label(name)) } dd { (field(name, value, now)) } } }
        },
    }
}

fn field(name: &str, value: &Value, now: Timestamp) -> Markup {
    match value {
        Value::String(text) if ["state", "status"].contains(&name) => badge(text),
        value => tree(value, now),
    }
}

/// A name of a field in words: `last_seen` and `lastSeen` are `Last seen`.
fn label(name: &str) -> String {
    let mut words = String::new();
    for (index, c) in name.chars().enumerate() {
        match c {
            _ if index == 0 => words.extend(c.to_uppercase()),
            '_' => words.push(' '),
            c if c.is_uppercase() && name.starts_with(char::is_lowercase) => {
                words.push(' ');
                words.extend(c.to_lowercase());
            }
            c => words.push(c),
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_fields_are_words() {
        let cases = [
            ("last_seen", "Last seen"),
            ("lastSeen", "Last seen"),
            ("RoleBinding", "RoleBinding"),
            ("", ""),
        ];
        for (name, expected) in cases {
            assert_eq!(label(name), expected);
        }
    }

    #[test]
    fn every_field_is_shown_and_none_is_markup() {
        let report = json!({"kinds": [{"kind": "<b>", "held": null, "count": 3}], "state": "Blocked", "empty": []});
        let shown = tree(&report, Timestamp::UNIX_EPOCH).into_string();
        assert!(shown.contains("&lt;b&gt;") && !shown.contains("<b>"), "{shown}");
        for part in [
            "<dt>Held</dt><dd><span class=\"muted\">none</span></dd>",
            "<dd>3</dd>",
            "badge bad",
        ] {
            assert!(shown.contains(part), "{part} in {shown}");
        }
    }
}
