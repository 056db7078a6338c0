//! Why an object cannot be decoded, without a word of its values.
//!
//! The texts of serde's errors quote the value, and no text can be cut safely, because the value may look like the rest of it. So the
//! object is decoded with an error type of its own, which gets the parts of an error before there is a text, and never takes the value.

use std::fmt::Display;

use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, Expected, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_json::{Map, Value};

/// Why `text` is no `K`: the path of the field and what is expected there.
pub(super) fn error<K: DeserializeOwned>(text: &str) -> String {
    let tree = match serde_json::from_str(text) {
        Ok(tree) => tree,
        // It is valid JSON, so this is about its depth or a number that is too large.
        Err(error) => return error.to_string(),
    };
    match serde_path_to_error::deserialize::<_, K>(Tree(&tree)) {
        Ok(_) => "the object cannot be decoded".to_owned(),
        Err(error) => error.to_string(),
    }
}

/// What is expected, and nothing of what was found.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Undisclosed(String);

impl Undisclosed {
    fn expects(expected: impl Display) -> Self {
        Self(format!("expected {expected}"))
    }
}

impl serde::de::Error for Undisclosed {
    /// The text is a type's own, and can quote the value.
    fn custom<T: Display>(_: T) -> Self {
        Self("this value is not allowed".to_owned())
    }

    fn invalid_type(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expects(expected)
    }

    fn invalid_value(_: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::expects(expected)
    }

    fn invalid_length(_: usize, expected: &dyn Expected) -> Self {
        Self::expects(expected)
    }

    fn unknown_variant(_: &str, expected: &'static [&'static str]) -> Self {
        Self::expects(format_args!("one of {}", expected.join(", ")))
    }

    fn unknown_field(_: &str, expected: &'static [&'static str]) -> Self {
        Self(format!(
            "a field that does not exist; expected one of {}",
            expected.join(", ")
        ))
    }

    fn missing_field(field: &'static str) -> Self {
        Self(format!("the field {field} is missing"))
    }

    fn duplicate_field(field: &'static str) -> Self {
        Self(format!("the field {field} is there twice"))
    }
}

/// A value, decoded as `serde_json` does.
#[derive(Clone, Copy)]
struct Tree<'a>(&'a Value);

impl<'de> IntoDeserializer<'de, Undisclosed> for Tree<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

fn fields(object: &Map<String, Value>) -> impl Iterator<Item = (&str, Tree<'_>)> {
    object.iter().map(|(field, value)| (field.as_str(), Tree(value)))
}

impl<'de> Deserializer<'de> for Tree<'de> {
    type Error = Undisclosed;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Undisclosed> {
        match self.0 {
            Value::Null => visitor.visit_unit(),
            Value::Bool(value) => visitor.visit_bool(*value),
            Value::Number(number) => match (number.as_u64(), number.as_i64(), number.as_f64()) {
                (Some(number), _, _) => visitor.visit_u64(number),
                (None, Some(number), _) => visitor.visit_i64(number),
                (None, None, number) => visitor.visit_f64(number.unwrap_or(f64::NAN)),
            },
            Value::String(text) => visitor.visit_borrowed_str(text),
            Value::Array(items) => SeqDeserializer::new(items.iter().map(Tree)).deserialize_any(visitor),
            Value::Object(object) => MapDeserializer::new(fields(object)).deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Undisclosed> {
        match self.0 {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Undisclosed> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Undisclosed> {
        match self.0 {
            Value::String(variant) => visitor.visit_enum(variant.as_str().into_deserializer()),
            Value::Object(object) => {
                visitor.visit_enum(MapAccessDeserializer::new(MapDeserializer::new(fields(object))))
            }
            _ => Err(Undisclosed::invalid_type(
                Unexpected::Other("another value"),
                &"an enum",
            )),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct
        map struct identifier ignored_any
    }
}
