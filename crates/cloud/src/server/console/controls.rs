//! The parts of pages: fields, forms, tables and times.

use jiff::{SignedDuration, Timestamp};
use maud::{Markup, html};
use serde_json::Value;

use super::directory::has_passed;
use super::fields::FormFields;
use super::page::csrf;
use super::session::Session;
use super::value::text;

/// The number of rows of a table.
pub(super) const ROWS: usize = 100;

/// The time before an end in which pages point it out.
const SOON: SignedDuration = SignedDuration::from_hours(7 * 24);

/// A field with a text.
pub(super) fn input(label: &str, name: &str, value: &str) -> Markup {
    html! { label { (label) " " input name=(name) value=(value); } }
}

/// A field that must be filled.
pub(super) fn required(label: &str, name: &str, kind: &str) -> Markup {
    html! { label { (label) " " input type=(kind) name=(name) required; } }
}

/// A field with a credential, which no page shows again.
pub(super) fn secret(label: &str, name: &str, autocomplete: &str) -> Markup {
    html! { label { (label) " " input type="password" name=(name) autocomplete=(autocomplete); } }
}

/// A field with the end of an access.
pub(super) fn end_input(end: &str) -> Markup {
    html! {
        label {
            "Ends (UTC; leave it empty for access without an end) "
            input type="datetime-local" step="1" name="expires_at" value=(end.trim_end_matches('Z'));
        }
    }
}

/// The end in a form; null for access without an end. The API checks its form.
pub(super) fn end_of(form: &FormFields) -> Value {
    let Some(end) = form.filled("expires_at") else {
        return Value::Null;
    };
    let end = end.trim_end_matches('Z');
    // A browser leaves out seconds that are zero.
    let seconds = if end.matches(':').count() == 1 { ":00" } else { "" };
    Value::from(format!("{end}{seconds}Z"))
}

/// A list of values with their labels.
pub(super) fn select<'a>(
    label: &str,
    name: &str,
    options: impl IntoIterator<Item = (&'a str, &'a str)>,
    selected: &str,
) -> Markup {
    html! {
        label {
            (label) " "
            select name=(name) {
                @for (value, label) in options {
                    option value=(value) selected[value == selected] { (label) }
                }
            }
        }
    }
}

/// A form that begins a change.
pub(super) fn form(session: &Session, path: &str, button: &str, fields: &Markup) -> Markup {
    html! {
        form method="post" action=(path) {
            (csrf(session))
            (fields)
            button type="submit" { (button) }
        }
    }
}

/// A button that begins a change.
pub(super) fn button(session: &Session, path: &str, label: &str) -> Markup {
    form(session, path, label, &Markup::default())
}

/// A table with these headers, in a region that scrolls.
pub(super) fn table(caption: &str, headers: &[&str], rows: &Markup) -> Markup {
    html! {
        div.table role="region" aria-label=(caption) tabindex="0" {
            table {
                thead {
                    tr {
                        @for header in headers {
                            @if header.is_empty() { td {} } @else { th scope="col" { (header) } }
                        }
                    }
                }
                tbody {
                    @if rows.0.is_empty() { tr { td colspan=(headers.len()) { "none" } } }
                    (rows)
                }
            }
        }
    }
}

/// Names and their values. One without a value is left out.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    let known = facts.iter().filter(|(_, value)| !value.0.is_empty());
    html! { dl { @for (name, value) in known { dt { (name) } dd { (value) } } } }
}

/// The link to the next rows.
pub(super) fn next(path: &str, after: Option<&str>) -> Markup {
    html! { @if let Some(after) = after { p { a rel="next" href=(with_query(path, &[("after", after)])) { "Next" } } } }
}

/// The path with this query.
pub(super) fn with_query(path: &str, query: &[(&str, &str)]) -> String {
    let mut pairs = url::form_urlencoded::Serializer::new(String::new());
    format!("{path}?{}", pairs.extend_pairs(query).finish())
}

/// A time of the API: RFC 3339, or milliseconds since 1970.
pub(super) fn timestamp(time: &str) -> Option<Timestamp> {
    let millis = time.parse().ok().map(Timestamp::from_millisecond);
    millis.and_then(Result::ok).or_else(|| time.parse().ok())
}

/// A time of the API, which the script shows in the time zone of the browser.
pub(super) fn time(time: &str) -> Markup {
    let Some(at) = timestamp(time) else {
        return html! { (time) };
    };
    let at = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    html! { time datetime=(at) title=(at) { (at) } }
}

/// The end of the access that `object` gives.
pub(super) fn ends(object: &Value, now: Timestamp) -> Markup {
    end(text(object, "expires_at"), now)
}

/// An end of access, which is marked within a week before it.
pub(super) fn end(end: &str, now: Timestamp) -> Markup {
    html! {
        @if end.is_empty() { "no end" } @else if has_passed(end, now) { "ended " (time(end)) } @else {
            (time(end))
            @if is_soon(end, now) { " " span.badge.active { "soon" } }
        }
    }
}

/// Returns true if the end is within a week.
pub(super) fn is_soon(end: &str, now: Timestamp) -> bool {
    let soon = now.checked_add(SOON).unwrap_or(Timestamp::MAX);
    !has_passed(end, now) && has_passed(end, soon)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_within_a_week_is_marked() {
        let now = "2027-01-31T18:00:00Z".parse().unwrap();
        for (at, words, is_marked) in [
            ("", "no end", false),
            ("2027-01-31T18:00:00Z", "ended", false),
            ("2027-02-07T18:00:00Z", "2027-02-07", true),
            ("2027-02-07T18:00:01Z", "2027-02-07", false),
        ] {
            let shown = end(at, now).into_string();
            assert!(shown.contains(words), "{shown}");
            assert_eq!(shown.contains("soon"), is_marked, "{shown}");
        }
    }
}
