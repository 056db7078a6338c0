//! One YAML or JSON document as a tree, and the fields that are read from it.
//!
//! Every error names the file, the path of the field, its value and what is allowed, in one line. Anchors are expanded
//! only within the limits of [`parse`], so a small file cannot become a large tree. Fields that are not requested are
//! never validated.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use serde_saphyr::options::NonFiniteFloatPolicy;
use serde_saphyr::{Options, UserMessageFormatter};
use tidewaiter_api::values::quoted;

/// The maximum size of a file: twenty times the largest `Cluster` that kOps writes.
pub(crate) const MAX_BYTES: usize = 1024 * 1024;

/// An unusable file, and the invalid field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidFile {
    /// The file: a path below the configuration base, or of the host for the configuration file.
    pub file: String,
    /// The field, for example `spec.role`; empty if the whole document is invalid.
    pub field: String,
    /// What is wrong and what is allowed.
    pub reason: String,
}

impl fmt::Display for InvalidFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            write!(f, "{}: {}", self.file, self.reason)
        } else {
            write!(f, "{}: {}: {}", self.file, self.field, self.reason)
        }
    }
}

/// The value of a label in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LabelText {
    /// A string; `null` and an absent value are the empty string, as in kOps.
    Text(String),
    /// Another type, formatted for a message. kOps rejects the whole file; here only this label is rejected.
    NotText(String),
}

/// One `nodeLabels` field.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeLabelField {
    /// Its path in the file, for example `spec.kubelet.nodeLabels`.
    pub field: String,
    /// Its keys and values.
    pub entries: BTreeMap<String, LabelText>,
}

/// Parses `bytes` as a single mapping.
pub(crate) fn parse(file: &str, bytes: &[u8]) -> Result<Map<String, Value>, InvalidFile> {
    let invalid = |reason: String| InvalidFile {
        file: file.to_owned(),
        field: String::new(),
        reason,
    };
    if bytes.len() > MAX_BYTES {
        return Err(invalid(format!("is larger than {} KiB", MAX_BYTES / 1024)));
    }
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("is not UTF-8 text".to_owned()))?;
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if start.starts_with('<') {
        return Err(invalid("is HTML or XML, not YAML".to_owned()));
    }
    let value: Value = serde_saphyr::from_str_with_options(text, options()).map_err(|error| {
        // The default formatter advises on the options of the parser.
        let reason = error.render_with_formatter(&UserMessageFormatter);
        invalid(format!("is not valid YAML: {}", one_line(&reason)))
    })?;
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Err(invalid("is empty".to_owned())),
        other => Err(invalid(format!(
            "must be a mapping of keys to values, but is {}",
            shown(&other)
        ))),
    }
}

/// Files that kOps writes contain no anchors. The limits allow a few of a user's, but no YAML bomb: eight aliases, with
/// any nesting, repeat a text at most 18 times (3 * 3 * 2).
fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_documents: 1,
            max_aliases: 8,
            max_anchors: 8,
            max_depth: 64,
            max_nodes: 100_000,
            max_total_scalar_bytes: MAX_BYTES,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 1_000,
            max_replay_stack_depth: 8,
        },
        // Fields that are not read may contain an infinity.
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

/// A mapping inside a document, with its path.
#[derive(Clone, Debug)]
pub(crate) struct Mapping<'a> {
    file: &'a str,
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Mapping<'a> {
    pub(crate) fn root(file: &'a str, map: &'a Map<String, Value>) -> Self {
        Self {
            file,
            path: String::new(),
            map,
        }
    }

    /// The field `key`, unless it is absent or null.
    pub(crate) fn get(&self, key: &str) -> Option<Field<'a>> {
        self.field(key, self.map.get(key)?)
    }

    /// The field `key`, ignoring case as Go's `encoding/json` does. Two spellings of one key are an error.
    pub(crate) fn get_any_case(&self, key: &str) -> Result<Option<Field<'a>>, InvalidFile> {
        let mut found = self.map.iter().filter(|(name, _)| name.eq_ignore_ascii_case(key));
        let (first, second) = (found.next(), found.next());
        if let (Some((first, _)), Some((second, _))) = (first, second) {
            return Err(self.invalid(key, format!("occurs twice, as {first} and as {second}")));
        }
        Ok(first.and_then(|(name, value)| self.field(name, value)))
    }

    /// The keys with a value other than null.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &'a str> {
        self.map
            .iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, _)| key.as_str())
    }

    /// The field `key`, or the error that it is missing; `wanted` describes the expected value.
    pub(crate) fn require(&self, key: &str, wanted: &str) -> Result<Field<'a>, InvalidFile> {
        self.get(key).ok_or_else(|| self.missing(key, wanted))
    }

    pub(crate) fn missing(&self, key: &str, wanted: &str) -> InvalidFile {
        self.invalid(key, format!("is missing: must be {wanted}"))
    }

    /// The labels under `key`. Only a value that is not a mapping makes the file unusable.
    pub(crate) fn node_labels(&self, key: &str) -> Result<NodeLabelField, InvalidFile> {
        let Some(field) = self.get(key) else {
            return Ok(NodeLabelField {
                field: self.path_of(key),
                entries: BTreeMap::new(),
            });
        };
        let entries = field.mapping("a mapping of label keys to values")?.map;
        Ok(NodeLabelField {
            entries: entries
                .iter()
                .map(|(key, value)| (key.clone(), label_text(value)))
                .collect(),
            field: field.path,
        })
    }

    /// The error that the field `key` is invalid for `reason`.
    pub(crate) fn invalid(&self, key: &str, reason: String) -> InvalidFile {
        InvalidFile {
            file: self.file.to_owned(),
            field: self.path_of(key),
            reason,
        }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn field(&self, key: &str, value: &'a Value) -> Option<Field<'a>> {
        (!value.is_null()).then(|| Field {
            file: self.file,
            path: self.path_of(key),
            value,
        })
    }
}

/// A value inside a document, with its path.
#[derive(Clone, Debug)]
pub(crate) struct Field<'a> {
    file: &'a str,
    path: String,
    value: &'a Value,
}

impl<'a> Field<'a> {
    pub(crate) fn mapping(&self, wanted: &str) -> Result<Mapping<'a>, InvalidFile> {
        match self.value {
            Value::Object(map) => Ok(Mapping {
                file: self.file,
                path: self.path.clone(),
                map,
            }),
            _ => Err(self.must_be(wanted)),
        }
    }

    pub(crate) fn text(&self, wanted: &str) -> Result<&'a str, InvalidFile> {
        match self.value {
            Value::String(text) => Ok(text),
            _ => Err(self.must_be(wanted)),
        }
    }

    pub(crate) fn boolean(&self) -> Result<bool, InvalidFile> {
        self.value.as_bool().ok_or_else(|| self.must_be("true or false"))
    }

    /// A count, of any items.
    pub(crate) fn count(&self) -> Result<u32, InvalidFile> {
        let number = self.value.as_u64().and_then(|number| u32::try_from(number).ok());
        number.ok_or_else(|| self.must_be("a whole number from 0 to 4294967295"))
    }

    pub(crate) fn texts(&self, wanted: &str) -> Result<Vec<String>, InvalidFile> {
        let texts = self
            .value
            .as_array()
            .and_then(|list| list.iter().map(Value::as_str).collect());
        let texts: Vec<&str> = texts.ok_or_else(|| self.must_be(wanted))?;
        Ok(texts.into_iter().map(str::to_owned).collect())
    }

    pub(crate) fn mappings(&self, wanted: &str) -> Result<Vec<Mapping<'a>>, InvalidFile> {
        let items = self.value.as_array().ok_or_else(|| self.must_be(wanted))?;
        let mappings = items.iter().enumerate().map(|(index, item)| {
            Some(Mapping {
                file: self.file,
                path: format!("{}[{index}]", self.path),
                map: item.as_object()?,
            })
        });
        let mappings: Option<Vec<_>> = mappings.collect();
        mappings.ok_or_else(|| self.must_be(wanted))
    }

    /// The error that this field is not `wanted`.
    pub(crate) fn must_be(&self, wanted: &str) -> InvalidFile {
        self.invalid(format!("is {}, must be {wanted}", shown(self.value)))
    }

    /// The error that this field is invalid for `reason`.
    pub(crate) fn invalid(&self, reason: String) -> InvalidFile {
        InvalidFile {
            file: self.file.to_owned(),
            field: self.path.clone(),
            reason,
        }
    }
}

fn label_text(value: &Value) -> LabelText {
    match value {
        Value::String(text) => LabelText::Text(text.clone()),
        Value::Null => LabelText::Text(String::new()),
        other => LabelText::NotText(shown(other)),
    }
}

/// A value for a message, in one short line.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "empty".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(text) => quoted(text),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
    }
}

/// The text with each run of white space and control characters replaced by one space, cut after 200 characters.
pub(crate) fn one_line(text: &str) -> String {
    const SHOWN: usize = 200;
    let words: Vec<&str> = text
        .split(|c: char| c.is_whitespace() || c.is_control())
        .filter(|word| !word.is_empty())
        .collect();
    let line = words.join(" ");
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse("the/file", text.as_bytes()).unwrap_err().to_string()
    }

    fn labels(text: &str) -> BTreeMap<String, LabelText> {
        let text = format!("labels:\n{text}");
        let document = parse("f", text.as_bytes()).unwrap();
        Mapping::root("f", &document).node_labels("labels").unwrap().entries
    }

    #[test]
    fn what_is_no_mapping_is_named_in_one_line() {
        for (text, found) in [
            ("", "the/file: is empty"),
            ("# only a comment\n", "the/file: is empty"),
            ("---\n", "the/file: is empty"),
            ("~", "the/file: is empty"),
            (
                "- a\n- b\n",
                "the/file: must be a mapping of keys to values, but is a list",
            ),
            ("[]", "the/file: must be a mapping of keys to values, but is a list"),
            (
                "just text",
                "the/file: must be a mapping of keys to values, but is \"just text\"",
            ),
            (
                "42",
                "the/file: must be a mapping of keys to values, but is the number 42",
            ),
            (
                "<!DOCTYPE html>\n<html>a: b</html>",
                "the/file: is HTML or XML, not YAML",
            ),
            (
                "\n  <Error><Code>AccessDenied</Code></Error>",
                "the/file: is HTML or XML, not YAML",
            ),
        ] {
            assert_eq!(error(text), found, "{text:?}");
        }
    }

    #[test]
    fn broken_yaml_says_where() {
        for text in [
            "a: [1, 2",
            "a: b: c",
            "a:\n\t- b",
            "{\"a\": \"b\"",
            "a: 1\na: 2",
            "a: {b: 1, b: 2}",
            "a: *nowhere",
            "a: 1\n---\nb: 2\n",
            "%YAML 9.9\n---\n: :",
            "\"unterminated",
            "a: \u{0}",
        ] {
            let error = error(text);
            assert!(
                error.starts_with("the/file: is not valid YAML: ") && !error.contains('\n'),
                "{text:?}: {error}"
            );
            assert!(error.len() < 400, "{error}");
        }
        assert!(error("a: 1\nb: [").contains("line 2"), "{}", error("a: 1\nb: ["));
        for (text, reason) in [
            ("a: 1\na: 2", "duplicate mapping key: a not allowed here"),
            (": :", "null is not allowed here"),
        ] {
            assert!(error(text).contains(reason), "{}", error(text));
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_refused() {
        for bytes in [&b"\xff\xfe\x00a"[..], b"a: \xc3\x28", &[0x1f, 0x8b, 8, 0]] {
            assert!(parse("f", bytes).unwrap_err().reason.contains("UTF-8"), "{bytes:?}");
        }
        assert!(
            parse("f", &vec![b' '; MAX_BYTES + 1])
                .unwrap_err()
                .reason
                .contains("larger than 1024 KiB")
        );
    }

    #[test]
    fn a_small_file_cannot_become_a_large_tree() {
        let laughs = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a]\nc: &c [*b, *b, *b, *b, *b, *b, *b]\n\
                      d: &d [*c, *c, *c, *c, *c, *c]\ne: [*d, *d, *d, *d, *d, *d]\n";
        let wide = format!("a: &a {}\nb: [{}]\n", "x".repeat(500_000), "*a, ".repeat(500));
        let deep = "[".repeat(100_000);
        let nested: String = (0..5_000).map(|depth| " ".repeat(depth) + "a:\n").collect();
        for text in [laughs, &wide, &deep, &nested[..MAX_BYTES / 2], "a: &a [*a]"] {
            assert!(parse("f", text.as_bytes()).is_err(), "{}", &text[..40]);
        }
        assert!(
            parse("f", b"a: &a {b: c}\nd: *a\ne: {<<: *a, f: g}\n").is_ok(),
            "a person's few anchors are fine"
        );
        let repeated = |times: usize| format!("a: &a x\nb: [{}]\n", vec!["*a"; times].join(", "));
        assert!(parse("f", repeated(8).as_bytes()).is_ok());
        assert!(
            parse("f", repeated(9).as_bytes()).is_err(),
            "eight aliases are the bound"
        );
    }

    #[test]
    fn a_label_is_what_go_reads_as_a_string() {
        let text = |text: &str| LabelText::Text(text.to_owned());
        for (value, expected) in [
            ("blue", text("blue")),
            ("\"true\"", text("true")),
            ("'1'", text("1")),
            ("\"0x10\"", text("0x10")),
            ("!!str 1", text("1")),
            ("1.2.3", text("1.2.3")),
            ("2026-01-02", text("2026-01-02")),
            ("null", text("")),
            ("~", text("")),
            ("", text("")),
            ("\"\"", text("")),
            ("|-\n    a\n    b", text("a\nb")),
        ] {
            assert_eq!(labels(&format!("  key: {value}\n"))["key"], expected, "{value}");
        }
    }

    #[test]
    fn a_label_that_go_reads_as_something_else_is_no_string() {
        for value in [
            "true",
            "True",
            "yes",
            "no",
            "on",
            "off",
            "y",
            "N",
            "1",
            "-1",
            "0",
            "007",
            "0o7",
            "0x10",
            "0b1",
            "1_000",
            "1.0",
            "1e3",
            ".5",
            "+1",
            "18446744073709551616",
            "[a]",
            "{a: b}",
        ] {
            let found = &labels(&format!("  key: {value}\n"))["key"];
            assert!(matches!(found, LabelText::NotText(_)), "{value}: {found:?}");
        }
        assert_eq!(
            labels("  key: true\n")["key"],
            LabelText::NotText("the boolean true".to_owned())
        );
    }

    #[test]
    fn a_field_says_where_it_is_what_it_holds_and_what_it_may_hold() {
        let document = parse("f", b"a: {b: {c: 7}}\nd: null\n").unwrap();
        let root = Mapping::root("f", &document);
        let b = root.get("a").unwrap().mapping("a mapping").unwrap().get("b").unwrap();
        let c = b.mapping("a mapping").unwrap().get("c").unwrap();
        assert_eq!(
            c.text("a name").unwrap_err().to_string(),
            "f: a.b.c: is the number 7, must be a name"
        );
        assert_eq!(
            b.text("a name").unwrap_err().to_string(),
            "f: a.b: is a mapping, must be a name"
        );
        assert_eq!(
            root.require("d", "a name").unwrap_err().to_string(),
            "f: d: is missing: must be a name"
        );
    }

    #[test]
    fn json_is_yaml_with_its_escapes_and_tabs() {
        let document = parse(
            "f",
            b"{\n\t\"a\": \"\\u00e4\\n\",\n\t\"b\": {\"c\": [1, 2.5, true, null]}\n}\n",
        )
        .unwrap();
        assert_eq!(document["a"], "\u{e4}\n");
        assert_eq!(document["b"]["c"][1], 2.5);
        let entries: Vec<String> = (0..5_000).map(|n| format!("\"k{n}\":\"v{n}\"")).collect();
        let line = format!("{{\"a\":{{{}}},\"b\":1}}", entries.join(","));
        assert_eq!(
            parse("f", line.as_bytes()).unwrap()["a"]["k4999"],
            "v4999",
            "one long line"
        );
    }
}
