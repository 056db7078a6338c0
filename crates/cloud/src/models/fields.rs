//! Parses the fields of an object. Every error contains the path of the field, its value (unless it may be secret) and
//! what is allowed.

mod definition;
mod suggestions;

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use jiff::Timestamp;
use serde_json::{Map, Value};
use tidewaiter_api::values::{InvalidValue, quoted};
use tidewaiter_api::{LabelKey, LabelValue, NodeName, ProviderId};

use super::document::{MAX_ITEMS, join};
use super::values::read_as_text;
use super::{InvalidField, Unknown};

pub(super) use definition::{key, model};

/// An object of the API.
pub trait Model: Sized {
    /// Its name in messages, for example `a registry`.
    const KIND: &'static str;

    /// The maximum size of an object, in bytes.
    const MAX_BYTES: usize = 1024 * 1024;

    /// The keys of its fields, without those of flattened objects.
    const OWN: &'static [&'static str] = &[];

    /// Parses its fields. Objects that share fields parse them from the same `fields`, one after the other.
    ///
    /// # Errors
    /// The first invalid field, or two fields that contradict each other.
    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField>;

    /// Checks the rules that span fields. An unknown field is reported first: it may be the misspelled one that a rule
    /// misses. Only those of a flattened object are checked before.
    fn check_rules(&self, _fields: &Fields<'_>) -> Result<(), InvalidField> {
        Ok(())
    }
}

/// A type that can be parsed from a field.
pub(super) trait Read: Sized {
    fn read(at: &At<'_>) -> Result<Self, InvalidField>;
}

/// A value with its path.
#[derive(Clone)]
pub(super) struct At<'a> {
    path: String,
    pub(super) value: &'a Value,
    unknown: Unknown,
}

/// The fields of one object, and which of them were requested.
pub struct Fields<'a> {
    object: At<'a>,
    map: &'a Map<String, Value>,
    known: Vec<&'static str>,
    all_known: bool,
}

impl<'a> At<'a> {
    pub(super) fn root(value: &'a Value, unknown: Unknown) -> Self {
        Self {
            path: String::new(),
            value,
            unknown,
        }
    }

    /// An item of a document that is a list.
    pub(super) fn item(index: usize, value: &'a Value, unknown: Unknown) -> Self {
        Self {
            path: format!("[{index}]"),
            value,
            unknown,
        }
    }

    pub(super) fn text(&self, wanted: &str) -> Result<&'a str, InvalidField> {
        self.value.as_str().ok_or_else(|| self.must_be(&self.or_quoted(wanted)))
    }

    /// `wanted`, with the remedy for a text such as `2024` or `true`, which YAML reads as another type.
    pub(super) fn or_quoted(&self, wanted: &str) -> String {
        match self.value {
            Value::Bool(_) | Value::Number(_) => format!("{wanted} (in YAML, put it in quotes)"),
            _ => wanted.to_owned(),
        }
    }

    /// The items of a list with at most `most` items.
    pub(super) fn items<T: Read>(&self, most: usize) -> Result<Vec<T>, InvalidField> {
        let items = self.value.as_array().ok_or_else(|| self.must_be("a list"))?;
        if items.len() > most {
            return Err(self.invalid(format!("has {} items, may have at most {most}", items.len())));
        }
        let items = items.iter().enumerate();
        items.map(|(index, value)| T::read(&self.nth(index, value))).collect()
    }

    pub(super) fn map(&self) -> Result<&'a Map<String, Value>, InvalidField> {
        // The value may be a secret that belongs into the object.
        self.value.as_object().ok_or_else(|| self.secret_must_be("an object"))
    }

    /// The value of `key`.
    pub(super) fn at(&self, key: &str, value: &'a Value) -> Self {
        Self {
            path: join(&self.path, key),
            value,
            unknown: self.unknown,
        }
    }

    /// The field `key` of this object; `null` if it is missing.
    pub(super) fn field(&self, key: &str) -> Result<Self, InvalidField> {
        Ok(self.at(key, self.map()?.get(key).unwrap_or(&Value::Null)))
    }

    /// The item `index` of this list.
    pub(super) fn nth(&self, index: usize, value: &'a Value) -> Self {
        Self {
            path: format!("{}[{index}]", self.path),
            value,
            unknown: self.unknown,
        }
    }

    /// Returns true if this is what a client writes, and not what was stored, perhaps before a rule existed.
    pub(super) fn is_input(&self) -> bool {
        self.unknown == Unknown::Refuse
    }

    pub(super) fn fields(&self) -> Result<Fields<'a>, InvalidField> {
        Ok(Fields {
            object: self.clone(),
            map: self.map()?,
            known: Vec::new(),
            all_known: false,
        })
    }

    /// The error that this field is not `wanted`.
    pub(super) fn must_be(&self, wanted: &str) -> InvalidField {
        self.invalid(format!("is {}, must be {wanted}", shown(self.value)))
    }

    /// The same for a secret: only the type of the value is shown.
    pub(super) fn secret_must_be(&self, wanted: &str) -> InvalidField {
        self.invalid(format!("is {}, must be {wanted}", kind(self.value)))
    }

    pub(super) fn invalid(&self, reason: String) -> InvalidField {
        InvalidField {
            field: self.path.clone(),
            reason,
        }
    }
}

impl<'a> Fields<'a> {
    pub(super) fn find(&mut self, key: &'static str) -> At<'a> {
        self.known.push(key);
        self.object.at(key, self.map.get(key).unwrap_or(&Value::Null))
    }

    /// A required field.
    pub(super) fn required<T: Read>(&mut self, key: &'static str) -> Result<T, InvalidField> {
        let at = self.find(key);
        // The error of the type is the most specific one, but it does not distinguish a missing value from an empty
        // one.
        T::read(&at).map_err(|error| match at.value {
            Value::Null => self.misspelt(key).unwrap_or_else(|| {
                let rule = error.reason.replacen("is null, ", "", 1);
                at.invalid(format!("is missing: {rule}"))
            }),
            _ => error,
        })
    }

    /// A field that may be missing or `null`.
    pub(super) fn nullable<T: Read>(&mut self, key: &'static str) -> Result<Option<T>, InvalidField> {
        let at = self.find(key);
        if at.value.is_null() {
            Ok(None)
        } else {
            T::read(&at).map(Some)
        }
    }

    /// A text that may be missing, `null` or empty: some clients send an empty text instead of omitting it.
    pub(super) fn optional<T: Read>(&mut self, key: &'static str) -> Result<Option<T>, InvalidField> {
        let at = self.find(key);
        match at.value {
            Value::Null => Ok(None),
            Value::String(text) if text.is_empty() => Ok(None),
            _ => T::read(&at).map(Some),
        }
    }

    /// A field that has a default if it is missing or `null`.
    pub(super) fn or_default<T: Read + Default>(&mut self, key: &'static str) -> Result<T, InvalidField> {
        let at = self.find(key);
        if at.value.is_null() {
            Ok(T::default())
        } else {
            T::read(&at)
        }
    }

    /// A field that has a default if it is missing, `null` or an empty text.
    pub(super) fn or_default_if_empty<T: Read + Default>(&mut self, key: &'static str) -> Result<T, InvalidField> {
        Ok(self.optional(key)?.unwrap_or_default())
    }

    /// An object whose fields are among those of this one.
    pub(super) fn flatten<T: Model>(&mut self, _: &'static str) -> Result<T, InvalidField> {
        let model = T::take(self)?;
        model.check_rules(self)?;
        Ok(model)
    }

    /// A whole number within `bounds`.
    pub(super) fn number(&mut self, key: &'static str, least: u32, most: u32) -> Result<u32, InvalidField> {
        let at = self.find(key);
        let number = at.value.as_u64().and_then(|number| u32::try_from(number).ok());
        let number = number.filter(|number| (least..=most).contains(number));
        number.ok_or_else(|| match at.value {
            Value::Null => at.invalid(format!("is missing: must be a whole number from {least} to {most}")),
            _ => at.must_be(&format!("a whole number from {least} to {most}")),
        })
    }

    pub(super) fn optional_number(
        &mut self,
        key: &'static str,
        least: u32,
        most: u32,
    ) -> Result<Option<u32>, InvalidField> {
        if self.find(key).value.is_null() {
            return Ok(None);
        }
        self.number(key, least, most).map(Some)
    }

    /// A whole number within bounds, or `default` if it is missing or `null`.
    pub(super) fn number_or(
        &mut self,
        key: &'static str,
        default: u32,
        least: u32,
        most: u32,
    ) -> Result<u32, InvalidField> {
        Ok(self.optional_number(key, least, most)?.unwrap_or(default))
    }

    /// An error of `key` for a rule that spans fields.
    pub(super) fn invalid(&self, key: &str, reason: impl Into<String>) -> InvalidField {
        InvalidField {
            field: join(&self.object.path, key),
            reason: reason.into(),
        }
    }

    /// Checks that the list `key` contains no duplicates.
    pub(super) fn unique<T: Ord>(&self, key: &str, items: &[T]) -> Result<(), InvalidField> {
        let mut seen = BTreeSet::new();
        match items.iter().position(|item| !seen.insert(item)) {
            Some(index) => Err(InvalidField {
                field: format!("{}[{index}]", join(&self.object.path, key)),
                reason: "occurs twice; remove one of them".to_owned(),
            }),
            None => Ok(()),
        }
    }

    /// All entries of an object whose keys are names.
    pub(super) fn entries<K: FromStr<Err = InvalidValue> + Ord, V: Read>(
        &mut self,
    ) -> Result<BTreeMap<K, V>, InvalidField> {
        self.all_known = true;
        let entries = self.map.iter().map(|(key, value)| {
            let at = self.object.at(key, value);
            let name = key
                .parse()
                .map_err(|error: InvalidValue| at.invalid(format!("as a key: {}", error.rule)))?;
            Ok((name, V::read(&at)?))
        });
        entries.collect()
    }

    fn finish(&self, kind: &str) -> Result<(), InvalidField> {
        let unknown = self.map.keys().find(|key| !self.known.contains(&key.as_str()));
        match unknown {
            Some(key) if self.object.is_input() && !self.all_known => {
                Err(self.invalid(key, format!("is not a field of {kind}{}", self.nearest(key))))
            }
            _ => Ok(()),
        }
    }
}

impl<T: Model> Read for T {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let mut fields = at.fields()?;
        let model = T::take(&mut fields)?;
        fields.finish(T::KIND)?;
        model.check_rules(&fields)?;
        Ok(model)
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        at.items(MAX_ITEMS)
    }
}

impl<K: FromStr<Err = InvalidValue> + Ord, V: Read> Read for BTreeMap<K, V> {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        at.fields()?.entries()
    }
}

impl Read for bool {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        at.value.as_bool().ok_or_else(|| at.must_be("true or false"))
    }
}

impl Read for Timestamp {
    /// RFC 3339 only: the library also accepts annotations, missing seconds and spaces.
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        const WANTED: &str = "an RFC 3339 time, for example 2019-03-01T12:00:00Z";
        let text = at.value.as_str().unwrap_or_default();
        let bytes = text.as_bytes();
        let shaped = (20..=35).contains(&bytes.len())
            && [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')]
                .iter()
                .all(|(at, byte)| bytes[*at] == *byte)
            && bytes.iter().all(|b| b.is_ascii_digit() || b"-:.TZ+".contains(b));
        let time = shaped.then(|| text.parse().ok()).flatten();
        time.ok_or_else(|| at.must_be(WANTED))
    }
}

/// Parses a text with the type's `FromStr`.
pub(super) fn read_text<T: FromStr<Err = InvalidValue>>(at: &At<'_>, wanted: &str) -> Result<T, InvalidField> {
    let text = at.value.as_str().ok_or_else(|| {
        // Quotes are no remedy for a number that is not valid as a text either, such as one for a UUID.
        let is_valid = at.value.to_string().parse::<T>().is_ok();
        at.must_be(&if is_valid {
            at.or_quoted(wanted)
        } else {
            wanted.to_owned()
        })
    })?;
    text.parse()
        .map_err(|error: InvalidValue| at.invalid(format!("{}: {}", error.shown, error.rule)))
}

read_as_text!(LabelKey, "a label key");
read_as_text!(LabelValue, "a label value");
read_as_text!(NodeName, "a node name");
read_as_text!(ProviderId, "a providerID");

fn shown(value: &Value) -> String {
    match value {
        Value::Bool(value) => value.to_string(),
        Value::Number(value) => format!("the number {value}"),
        Value::String(text) => quoted(text),
        other => kind(other).to_owned(),
    }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
