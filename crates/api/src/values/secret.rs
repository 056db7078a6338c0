//! Texts that must not reach a log, an Event, a condition or an error.

use std::fmt;

use schemars::JsonSchema;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A part of a credential. `Debug` does not show it.
///
/// A field that contains one is read by `opaque`, because the errors of serde quote what they refuse.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(inline)]
pub struct SecretText(String);

impl SecretText {
    /// The text, for the one place that sends or stores it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for SecretText {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(not shown)")
    }
}

/// Reads a field with secrets. The error names neither the value nor a part of it; `null` is the default.
pub(crate) fn opaque<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    if value.is_null() {
        return Ok(T::default());
    }
    serde_json::from_value(value).map_err(|_| {
        D::Error::custom("must have the form that the definition describes (the value is secret and is not shown)")
    })
}
