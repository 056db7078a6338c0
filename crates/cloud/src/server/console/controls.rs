//! The parts of pages: fields, forms, tables and times.

use jiff::Timestamp;
use maud::{Markup, html};

use super::page::csrf;
use super::session::Session;

/// The number of rows of a table.
pub(super) const ROWS: usize = 100;

/// A field with a text.
pub(super) fn input(label: &str, name: &str, value: &str) -> Markup {
    html! { label { (label) " " input name=(name) value=(value); } }
}

/// A field that must be filled.
pub(super) fn required(label: &str, name: &str, kind: &str) -> Markup {
    html! { label { (label) " " input type=(kind) name=(name) required; } }
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
                thead { tr { @for header in headers { th scope="col" { (header) } } } }
                tbody { (rows) }
            }
        }
    }
}

/// Names and their values.
pub(super) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! { dl { @for (name, value) in facts { dt { (name) } dd { (value) } } } }
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
    match timestamp(time) {
        Some(at) => {
            let at = at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
            html! { time datetime=(at) title=(at) { (at) } }
        }
        None => html! { (time) },
    }
}
