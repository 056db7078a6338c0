//! One YAML or JSON document as a tree, and the fields that are read from it.
//!
//! Every error names the file, the path of the field, its value and what is allowed, in one line. Fields that are not
//! requested are never validated.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};
use tidewaiter_api::values::quoted;
pub(crate) use tidewaiter_kit::files::MAX_BYTES;
use tidewaiter_kit::yaml;

/// An unusable file, and the invalid field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidFile {
    /// The file: a path below the configuration base, or of the host for the configuration file.
    pub file: String,
    /// The field, for example `spec.role`; empty if the whole document is invalid.
    pub field: String,
    /// The error, and the values that are allowed.
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
    let text = std::str::from_utf8(bytes).map_err(|_| invalid("is not UTF-8 text: save it as UTF-8".to_owned()))?;
    let start = text.trim_start_matches('\u{feff}').trim_start();
    if start.starts_with('<') {
        return Err(invalid("is HTML or XML, not YAML".to_owned()));
    }
    let value = yaml::document(text).map_err(|error| invalid(format!("is not valid YAML: {error}")))?;
    match value {
        Value::Object(map) => Ok(map),
        Value::Null => Err(invalid("is empty".to_owned())),
        // Whatever was linked or named in place of a file of kOps may be secret.
        Value::String(text) => Err(invalid(format!(
            "must be a mapping of keys to values, but is a text of {} characters",
            text.chars().count()
        ))),
        other => Err(invalid(format!(
            "must be a mapping of keys to values, but is {}",
            shown(&other)
        ))),
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

/// The longest text that a message shows. What kOps allows is shorter; what is longer may be a secret in the wrong
/// place.
const SHOWN: usize = 24;
/// The length of the part of a longer text that a message shows.
const START: usize = 4;

/// A value for a message, in one short line.
fn shown(value: &Value) -> String {
    match value {
        Value::Null => "empty".to_owned(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(text) => match text.chars().count() {
            count if count > SHOWN => {
                let start: String = text.chars().take(START).collect();
                format!("a text of {count} characters that begins with {}", quoted(&start))
            }
            _ => quoted(text),
        },
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
mod tests;
