//! The templates of `-o jsonpath=`, as those of kubectl: texts and `{PATH}`, `{"TEXT"}`, `{range PATH}` with `{end}`.
//! A path is that of RFC 9535, with or without its `$`. A path that selects nothing prints nothing, but an index out of
//! the bounds of an array is an error, as for kubectl. `.items` of an array is the array.
//!
//! <https://kubernetes.io/docs/reference/kubectl/jsonpath/>

use std::str::FromStr;

use anyhow::{Result, anyhow, bail};
use jsonpath_rust::parser::errors::JsonPathError;
use jsonpath_rust::parser::model::{JpQuery, Segment, Selector};
use jsonpath_rust::parser::parse_json_path;
use jsonpath_rust::query::{QueryRef, js_path_process};
use serde_json::Value;
use tidewaiter_api::values::printable;

use crate::cloud::printable_json;

/// A template whose paths are valid.
#[derive(Clone, Debug)]
pub(crate) struct Template(Vec<Part>);

#[derive(Clone, Debug)]
enum Part {
    Text(String),
    Path(String),
    /// The parts for each value that the path selects.
    Range(String, Vec<Part>),
}

impl FromStr for Template {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if !text.contains('{') {
            return Ok(Self(vec![Part::Path(path(text)?)]));
        }
        // The open ranges; the first one is the template.
        let mut open = vec![(String::new(), Vec::new())];
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            let end = end(after).ok_or("a { has no }")?;
            let (inside, after) = (after[..end].trim(), &after[end + 1..]);
            push(&mut open, Part::Text(before.to_owned()));
            if let Some(range) = inside.strip_prefix("range ") {
                open.push((path(range.trim())?, Vec::new()));
            } else if inside == "end" {
                let ended = open.pop().filter(|_| !open.is_empty());
                let (path, parts) = ended.ok_or("an {end} has no {range}")?;
                push(&mut open, Part::Range(path, parts));
            } else {
                push(&mut open, value(inside)?);
            }
            rest = after;
        }
        push(&mut open, Part::Text(rest.to_owned()));
        match (open.pop(), open.is_empty()) {
            (Some((_, parts)), true) => Ok(Self(parts)),
            _ => Err("a {range} has no {end}".to_owned()),
        }
    }
}

impl Template {
    /// The text for the value. Nothing in it can make a terminal do anything, unless the template itself does.
    ///
    /// # Errors
    /// A path cannot be evaluated.
    pub(crate) fn text(&self, value: &Value) -> Result<String> {
        text(&self.0, value)
    }
}

fn text(parts: &[Part], value: &Value) -> Result<String> {
    let mut all = String::new();
    for part in parts {
        match part {
            Part::Text(text) => all += text,
            Part::Path(path) => {
                let selected = select(path, value)?.into_iter().map(shown);
                all += &selected.collect::<Vec<_>>().join(" ");
            }
            Part::Range(path, parts) => {
                for value in select(path, value)? {
                    all += &text(parts, value)?;
                }
            }
        }
    }
    Ok(all)
}

/// The values that the path selects.
fn select<'a>(path: &str, value: &'a Value) -> Result<Vec<&'a Value>> {
    let failed = |error: JsonPathError| anyhow!("jsonpath: {error}");
    // The objects of kubectl's lists are in `items`; our lists are arrays.
    let items = path.strip_prefix("$.items").filter(|_| value.is_array());
    let items = items.filter(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    let path = items.map_or_else(|| path.to_owned(), |rest| format!("${rest}"));
    let query = parse_json_path(&path).map_err(failed)?;
    for (place, segment) in query.segments.iter().enumerate() {
        if let Segment::Selector(Selector::Index(index)) = segment {
            let before = JpQuery::new(query.segments[..place].to_vec());
            let selected = js_path_process(&before, value).map_err(failed)?;
            selected.iter().try_for_each(|found| check_bounds(*index, found.val))?;
        }
    }
    let selected = js_path_process(&query, value).map_err(failed)?;
    Ok(selected.into_iter().map(QueryRef::val).collect())
}

/// Refuses an index that an array does not have, in the words of kubectl.
fn check_bounds(index: i64, value: &Value) -> Result<()> {
    let Value::Array(items) = value else { return Ok(()) };
    let length = i64::try_from(items.len())?;
    let index = if index < 0 { index + length } else { index };
    if !(0..length).contains(&index) {
        bail!("jsonpath: array index out of bounds: index {index}, length {length}");
    }
    Ok(())
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => printable(text),
        value => printable_json(&value.to_string()),
    }
}

fn push(open: &mut [(String, Vec<Part>)], part: Part) {
    if let Some((_, parts)) = open.last_mut() {
        parts.push(part);
    }
}

/// The place of the brace that ends what `text` begins with. One in quotes is a part of it.
fn end(text: &str) -> Option<usize> {
    let mut quote = None;
    let mut is_escaped = false;
    for (place, c) in text.char_indices() {
        match quote {
            _ if is_escaped => is_escaped = false,
            Some(_) if c == '\\' => is_escaped = true,
            Some(open) if c == open => quote = None,
            None if c == '}' => return Some(place),
            None if matches!(c, '"' | '\'') => quote = Some(c),
            _ => {}
        }
    }
    None
}

/// The text or the path in braces.
fn value(inside: &str) -> Result<Part, String> {
    if inside.starts_with('"') {
        let text = serde_json::from_str(inside);
        return text.map(Part::Text).map_err(|_| format!("{inside} is not a text"));
    }
    path(inside).map(Part::Path)
}

/// The path from the root.
fn path(text: &str) -> Result<String, String> {
    let path = match text.trim_start_matches(['$', '@']) {
        "" | "." => "$".to_owned(),
        rest if rest.starts_with(['.', '[']) => format!("${rest}"),
        rest => format!("$.{rest}"),
    };
    match parse_json_path(&path) {
        Ok(_) => Ok(path),
        Err(_) => Err(format!("{text} is not a path such as .name or [*].name")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_template_prints_what_its_paths_select() {
        let list = json!([
            {"name": "a", "id": 1, "labels": {"b}": "x"}, "status": {"type": "RUNNING"}},
            {"name": "b\u{1b}[2J", "id": 2, "labels": {}, "status": {"type": "\u{9b}\u{202e}"}},
        ]);
        for (template, expected) in [
            ("{[*].id}", "1 2"),
            ("{$[0].name}: {[0].status.type}\n", "a: RUNNING\n"),
            ("[*].id", "1 2"),
            ("{[1].name}", "b\\u{1b}[2J"),
            ("{[1].status}", r#"{"type":"\u009b\u202e"}"#),
            ("{.items[*].id}", "1 2"),
            ("{range .items[*]}{.id},{end}", "1,2,"),
            ("{.items[1].id}{.itemsPerPage}", "2"),
            ("{[0]['labels']['b}']}", "x"),
            ("{[?(@.id==2)].id}", "2"),
            ("{.nothing}", ""),
            (r#"{range [*]}{.id}={@.name}{"\n"}{end}."#, "1=a\n2=b\\u{1b}[2J\n."),
            (r#"{range [*]}{range .labels.*}<{@}>{end}{"}"}{end}"#, "<x>}}"),
        ] {
            let read: Template = template.parse().unwrap();
            assert_eq!(read.text(&list).unwrap(), expected, "{template}");
        }
        let one: Template = "{.id}{name}".parse().unwrap();
        assert_eq!(one.text(&list[0]).unwrap(), "1a");
    }

    #[test]
    fn an_index_out_of_bounds_is_an_error_as_for_kubectl() {
        let list = json!([{"keys": ["a"]}, {"keys": []}]);
        for (template, index, length) in [
            ("{.items[2].keys}", 2, 2),
            ("{[-3]}", -1, 2),
            ("{.items[1].keys[0]}", 0, 0),
            ("{range [*]}{.keys[0]}{end}", 0, 0),
        ] {
            let read: Template = template.parse().unwrap();
            let error = read.text(&list).unwrap_err().to_string();
            let expected = format!("jsonpath: array index out of bounds: index {index}, length {length}");
            assert_eq!(error, expected, "{template}");
        }
        let from_the_end: Template = "{[-2].keys[-1]}".parse().unwrap();
        assert_eq!(from_the_end.text(&list).unwrap(), "a");
    }

    #[test]
    fn a_template_that_is_wrong_is_refused_with_the_reason() {
        for (template, words) in [
            ("{.id", "has no }"),
            ("{range [*]}{.id}", "has no {end}"),
            ("{.id}{end}", "has no {range}"),
            ("{.id[}", "is not a path"),
            (r#"{"a}"#, "has no }"),
            (r#"{"\q"}"#, "is not a text"),
        ] {
            let refused = template.parse::<Template>().unwrap_err();
            assert!(refused.contains(words), "{template}: {refused}");
        }
    }
}
