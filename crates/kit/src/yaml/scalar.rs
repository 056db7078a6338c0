//! The meaning of a scalar, as in `resolve.go` of goyaml.v2.

use serde_json::{Number, Value};

/// A scalar of YAML 1.1.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Scalar {
    Null,
    Bool(bool),
    Integer(i64),
    /// Above the largest `i64`.
    Unsigned(u64),
    Float(f64),
    Text(String),
}

impl Scalar {
    /// The meaning of a plain scalar without a tag.
    pub(super) fn plain(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => Self::Null,
            "y" | "Y" | "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => Self::Bool(true),
            "n" | "N" | "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => Self::Bool(false),
            ".nan" | ".NaN" | ".NAN" => Self::Float(f64::NAN),
            ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Self::Float(f64::INFINITY),
            "-.inf" | "-.Inf" | "-.INF" => Self::Float(f64::NEG_INFINITY),
            _ => number(text).unwrap_or_else(|| Self::Text(text.to_owned())),
        }
    }

    /// The meaning of a scalar with a tag; `tag` is the name of a type of YAML's own, else empty.
    #[expect(clippy::cast_precision_loss, reason = "as in Go")]
    pub(super) fn tagged(tag: &str, text: &str) -> Result<Self, String> {
        let value = Self::plain(text);
        match (tag, value) {
            ("timestamp" | "binary", _) => Err(format!("the tag !!{tag} is not supported: write a text without a tag")),
            ("float", Self::Integer(integer)) => Ok(Self::Float(integer as f64)),
            ("null", value @ Self::Null)
            | ("bool", value @ Self::Bool(_))
            | ("int", value @ (Self::Integer(_) | Self::Unsigned(_)))
            | ("float", value @ Self::Float(_)) => Ok(value),
            ("null" | "bool" | "int" | "float", _) => Err(format!(
                "the value is not what its tag !!{tag} says: correct it, or leave out the tag"
            )),
            _ => Ok(Self::Text(text.to_owned())),
        }
    }

    /// As a value of JSON.
    pub(super) fn into_value(self) -> Result<Value, String> {
        Ok(match self {
            Self::Null => Value::Null,
            Self::Bool(value) => value.into(),
            Self::Integer(value) => value.into(),
            Self::Unsigned(value) => value.into(),
            Self::Float(value) => json_number(value)?.into(),
            Self::Text(text) => text.into(),
        })
    }

    /// As a key of an object of JSON.
    pub(super) fn into_key(self) -> Result<String, String> {
        Ok(match self {
            Self::Null => return Err("a key is empty or null: write the key, or quote it".to_owned()),
            Self::Bool(value) => value.to_string(),
            Self::Integer(value) => value.to_string(),
            Self::Unsigned(value) => return Err(format!("the key {value} is too large for a number: quote it")),
            Self::Float(value) => float_key(value),
            Self::Text(text) => text,
        })
    }
}

fn number(text: &str) -> Option<Scalar> {
    let start = text.bytes().next()?;
    if start == b'.' {
        // Go's own rule: each underscore is between two digits.
        let is_digit = |byte: u8| byte.is_ascii_digit();
        let mut places = text.as_bytes().windows(3);
        let is_separated = !text.ends_with('_') && places.all(|at| at[1] != b'_' || is_digit(at[0]) && is_digit(at[2]));
        return float(&text.replace('_', "")).filter(|_| is_separated);
    }
    if !matches!(start, b'0'..=b'9' | b'+' | b'-') {
        return None;
    }
    let text = text.replace('_', "");
    let after_sign = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let (radix, digits) = match after_sign.as_bytes() {
        [b'0', b'x' | b'X', _, ..] => (16, &after_sign[2..]),
        [b'0', b'o' | b'O', _, ..] => (8, &after_sign[2..]),
        [b'0', b'b' | b'B', _, ..] => (2, &after_sign[2..]),
        [b'0', _, ..] => (8, &after_sign[1..]),
        _ => (10, after_sign),
    };
    let sign = if text.starts_with('-') { "-" } else { "" };
    if digits.starts_with(|first: char| first.is_ascii_alphanumeric()) {
        if let Ok(value) = i64::from_str_radix(&format!("{sign}{digits}"), radix) {
            return Some(Scalar::Integer(value));
        }
        if after_sign == text
            && let Ok(value) = u64::from_str_radix(digits, radix)
        {
            return Some(Scalar::Unsigned(value));
        }
    }
    // A sign may follow the prefix of a binary number in Go.
    let binary = || i64::from_str_radix(text.strip_prefix("0b")?, 2).ok();
    float(&text).or_else(|| binary().map(Scalar::Integer))
}

/// A decimal number. One that is too large is a text.
fn float(text: &str) -> Option<Scalar> {
    let is_decimal = text
        .bytes()
        .all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    let value: f64 = text.parse().ok().filter(|_| is_decimal)?;
    value.is_finite().then_some(Scalar::Float(value))
}

/// A whole number is an integer, since Go writes it into JSON without a fraction.
fn json_number(value: f64) -> Result<Number, String> {
    let text = value.to_string();
    let integer = text.parse().map(|value: i64| value.into());
    integer
        .or_else(|_| text.parse().map(|value: u64| value.into()))
        .ok()
        .or_else(|| Number::from_f64(value))
        .ok_or_else(|| {
            let value = float_key(value);
            format!("the value {value} is no number of JSON: write a finite number, or quote it")
        })
}

/// Formats a key as Go's `FormatFloat(value, 'g', -1, 32)` does; NaN and infinities as in YAML.
#[expect(clippy::cast_possible_truncation, reason = "as in Go")]
fn float_key(value: f64) -> String {
    let value = value as f32;
    if value.is_nan() {
        return ".nan".to_owned();
    }
    if value.is_infinite() {
        return if value < 0.0 { "-.inf" } else { ".inf" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    match exponent.parse::<i32>() {
        Ok(exponent) if exponent < -4 => format!("{digits}e-{:02}", exponent.abs()),
        Ok(exponent) if exponent >= 6 => format!("{digits}e+{exponent:02}"),
        _ => format!("{value}"),
    }
}
