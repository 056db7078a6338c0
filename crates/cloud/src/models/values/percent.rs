//! Percentages.

use serde::{Serialize, Serializer};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};

use crate::models::document::InvalidField;
use crate::models::fields::{At, Read};

const WANTED: &str = "a number from 0 to 100";

/// A percentage: a number on the wire. A text, which agents up to v5.0.0 send, is accepted too.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Percent(f64);

impl Percent {
    /// The percentage, if it is one.
    #[must_use]
    pub fn new(number: f64) -> Option<Self> {
        // The sum is 0 for -0, which would be written with its sign.
        (0.0..=100.0).contains(&number).then_some(Self(number + 0.0))
    }

    /// The number, from 0 to 100.
    #[must_use]
    pub fn get(self) -> f64 {
        self.0
    }
}

/// A whole number has no fraction, so that a client that encodes it again writes the same.
impl Serialize for Percent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0.to_string().parse() {
            Ok(whole) => serializer.serialize_u8(whole),
            Err(_) => serializer.serialize_f64(self.0),
        }
    }
}

impl Read for Percent {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let decimal = |text: &&str| {
            let starts = text.starts_with(|c: char| c.is_ascii_digit());
            starts && text.len() <= 20 && text.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        };
        let text = at.value.as_str().filter(decimal).and_then(|text| text.parse().ok());
        let number = at.value.as_f64().or(text).and_then(Self::new);
        number.ok_or_else(|| at.must_be(WANTED))
    }
}

impl utoipa::ToSchema for Percent {}

/// Written by hand, because the derive knows no bounds of a tuple.
impl utoipa::PartialSchema for Percent {
    fn schema() -> RefOr<Schema> {
        let number = ObjectBuilder::new().schema_type(Type::Number);
        let number = number.minimum(Some(0)).maximum(Some(100)).examples([50]);
        number.description(Some("A percentage.")).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::values::assert_read;

    #[test]
    fn a_number_or_a_text_is_written_as_a_number() {
        assert_read! { Percent:
            [
                "1" => 1, 1 => 1, 1.0 => 1, "99.99" => 99.99, 99.99 => 99.99, "0" => 0, -0.0 => 0, 100 => 100
            ]
            not ["", "101", 100.1, -1, "-1", "+1", "1e1", ".5", "1.2.3", "1%", "NaN", "\u{661}", true]
        }
    }
}
