//! JSON as a tree without duplicate keys, and the error of all kinds.
//!
//! Parsers differ in how they treat duplicate keys; `serde_json` alone would silently use the last one.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer as _, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use tidewaiter_api::values::quoted;

type Reader<'a> = serde_json::Deserializer<serde_json::de::SliceRead<'a>>;

/// The maximum length of a list within an object.
pub(super) const MAX_ITEMS: usize = 1_000;

/// An invalid document, and the invalid field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct InvalidField {
    /// The path of the field, for example `rules[0].verbs[1]`; empty if the whole document is invalid. Safe to print.
    pub field: String,
    /// The error and what is allowed: one line, without control characters and secrets.
    pub reason: String,
}

impl InvalidField {
    /// The whole document is invalid.
    pub(super) fn whole(reason: impl Into<String>) -> Self {
        Self {
            field: String::new(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for InvalidField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.field.is_empty() {
            f.write_str(&self.reason)
        } else {
            write!(f, "{}: {}", self.field, self.reason)
        }
    }
}

/// The treatment of unknown fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// They are an error, so that a typing error of a user has no silent effect.
    Refuse,
    /// They are ignored: a newer server may send more fields.
    Ignore,
}

/// Parses `bytes` as one JSON value.
pub(super) fn parse(bytes: &[u8], max_bytes: usize) -> Result<Value, InvalidField> {
    read(bytes, max_bytes, |reader, twice| {
        let path = &Path::Root;
        Seed { path, twice }.deserialize(reader)
    })
}

/// Parses `bytes` as a JSON list, and passes each item to `take`: no other item is in memory as a tree meanwhile, which
/// takes many times the space of the text. None if `bytes` are no list.
pub(super) fn parse_items<R>(
    bytes: &[u8],
    max_bytes: usize,
    take: impl FnMut(usize, &Value) -> R,
) -> Result<Option<Vec<R>>, InvalidField> {
    if bytes.trim_ascii_start().first() != Some(&b'[') {
        return Ok(None);
    }
    read(bytes, max_bytes, |reader, twice| {
        reader.deserialize_seq(Items { take, twice }).map(Some)
    })
}

/// Checks that a document is not larger than `max_bytes`.
pub(super) fn check_size(bytes: usize, max_bytes: usize) -> Result<(), InvalidField> {
    if bytes <= max_bytes {
        return Ok(());
    }
    Err(InvalidField::whole(format!("is larger than {} KiB", max_bytes / 1024)))
}

fn read<'a, T>(
    bytes: &'a [u8],
    max_bytes: usize,
    deserialize: impl FnOnce(&mut Reader<'a>, &RefCell<Option<String>>) -> serde_json::Result<T>,
) -> Result<T, InvalidField> {
    check_size(bytes.len(), max_bytes)?;
    match bytes.iter().find(|byte| !byte.is_ascii_whitespace()) {
        None => return Err(InvalidField::whole("is empty, must be JSON")),
        Some(b'<') => return Err(InvalidField::whole("is HTML or XML, must be JSON")),
        Some(_) => {}
    }
    let twice = RefCell::new(None);
    let mut reader = Reader::from_slice(bytes);
    let parsed = deserialize(&mut reader, &twice).and_then(|value| {
        reader.end()?;
        Ok(value)
    });
    match (twice.take(), parsed) {
        (Some(field), _) => Err(InvalidField {
            field,
            reason: "occurs twice; remove one of them".to_owned(),
        }),
        (None, parsed) => parsed.map_err(|error| InvalidField::whole(format!("is not valid JSON: {error}"))),
    }
}

/// `path.key`, or `path["key"]` for a key that would be ambiguous.
pub(super) fn join(path: &str, key: &str) -> String {
    let plain = (1..=63).contains(&key.len()) && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    match (plain, path.is_empty()) {
        (true, true) => key.to_owned(),
        (true, false) => format!("{path}.{key}"),
        (false, _) => format!("{path}[{}]", quoted(key)),
    }
}

/// The current location of the parser. It is formatted only for an error.
enum Path<'a> {
    Root,
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl Path<'_> {
    /// The end of the path with the key: a path may be deeply nested and have long keys.
    fn shortened(&self) -> String {
        const SHOWN: usize = 500;
        let text = self.text();
        match text.char_indices().rev().nth(SHOWN) {
            Some((start, _)) => format!("...{}", &text[start..]),
            None => text,
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Root => String::new(),
            Self::Key(parent, key) => join(&parent.text(), key),
            Self::Index(parent, index) => format!("{}[{index}]", parent.text()),
        }
    }
}

struct Seed<'a> {
    path: &'a Path<'a>,
    twice: &'a RefCell<Option<String>>,
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Seed {
            path: &Path::Index(self.path, items.len()),
            twice: self.twice,
        })? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = access.next_key::<String>()? {
            let path = Path::Key(self.path, &key);
            if map.contains_key(&key) {
                *self.twice.borrow_mut() = Some(path.shortened());
                return Err(A::Error::custom("a key occurs twice"));
            }
            let value = access.next_value_seed(Seed {
                path: &path,
                twice: self.twice,
            })?;
            map.insert(key, value);
        }
        Ok(Value::Object(map))
    }
}

struct Items<'a, F> {
    take: F,
    twice: &'a RefCell<Option<String>>,
}

impl<'de, R, F: FnMut(usize, &Value) -> R> Visitor<'de> for Items<'_, F> {
    type Value = Vec<R>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut seq: A) -> Result<Vec<R>, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element_seed(Seed {
            path: &Path::Index(&Path::Root, items.len()),
            twice: self.twice,
        })? {
            items.push((self.take)(items.len(), &item));
        }
        Ok(items)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        parse(text.as_bytes(), 1024).unwrap_err().to_string()
    }

    #[test]
    fn a_key_that_is_given_twice_is_named() {
        for (text, field) in [
            (r#"{"a":1,"a":1}"#, "a"),
            (r#"{"a":{"b":[{},{"c":1,"\u0063":2}]}}"#, "a.b[1].c"),
            (r#"[{"a b":1,"a b":2}]"#, r#"[0]["a b"]"#),
            (r#"{"\n":1,"\n":2}"#, r#"["\n"]"#),
        ] {
            assert_eq!(error(text), format!("{field}: occurs twice; remove one of them"));
        }
        assert!(parse(br#"{"a":{"a":1},"b":{"a":1}}"#, 1024).is_ok());
        let (open, close) = (format!("{{\"{}\":", "\u{e4}".repeat(200)).repeat(100), "}".repeat(100));
        let error = parse(format!("{open}{{\"k\":1,\"k\":2}}{close}").as_bytes(), 1 << 20).unwrap_err();
        assert!(
            error.field.starts_with("...") && error.field.ends_with("].k") && error.field.len() < 2_000,
            "{error}"
        );
    }

    #[test]
    fn what_is_no_json_says_so_in_one_line() {
        for (text, found) in [
            ("", "is empty, must be JSON"),
            (" \n", "is empty, must be JSON"),
            ("\n<html>", "is HTML or XML, must be JSON"),
        ] {
            assert_eq!(error(text), found);
        }
        for text in [
            "{",
            "[1,]",
            "{} {}",
            "nul",
            "\"a\nb\"",
            "{\"a\":}",
            "1e999",
            "\u{feff}{}",
            &"[".repeat(1000),
        ] {
            let error = error(text);
            assert!(
                error.starts_with("is not valid JSON: ") && !error.contains('\n'),
                "{text}: {error}"
            );
        }
        assert_eq!(error(&" ".repeat(1025)), "is larger than 1 KiB");
        assert!(parse(&[b'"', 0xff, b'"'], 1024).is_err(), "no UTF-8");
    }

    #[test]
    fn items_of_a_list_are_passed_one_by_one() {
        let items = |text: &str| parse_items(text.as_bytes(), 1024, |index, item| format!("{index}:{item}"));
        for (text, found) in [
            ("[]", Some(vec![])),
            (" [1, {\"a\":[2]}]\n", Some(vec!["0:1", "1:{\"a\":[2]}"])),
            ("{}", None),
            ("null", None),
            ("", None),
        ] {
            let found: Option<Vec<String>> = found.map(|items| items.into_iter().map(str::to_owned).collect());
            assert_eq!(items(text), Ok(found), "{text}");
        }
        for (text, field) in [
            ("[1,]", ""),
            ("[1] 2", ""),
            ("[{}", ""),
            (r#"[0,{"a":{"b":1,"b":1}}]"#, "[1].a.b"),
        ] {
            assert_eq!(items(text).unwrap_err().field, field, "{text}");
        }
        assert!(items(&format!("[{}]", "1,".repeat(1024))).is_err(), "larger than 1 KiB");
    }

    #[test]
    fn numbers_stay_what_they_are() {
        let value = parse(b"[18446744073709551615,-1,0.1,1e2]", 1024).unwrap();
        assert_eq!(value.to_string(), "[18446744073709551615,-1,0.1,100.0]");
    }
}
