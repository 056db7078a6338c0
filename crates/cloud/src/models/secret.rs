//! Secrets are never printed, and written only by [`Credentials::revealed`].

use std::collections::BTreeMap;
use std::fmt;

use secrecy::{ExposeSecret, SecretString};
use utoipa::openapi::{ObjectBuilder, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

use super::fields::{At, Read};
use super::values::CredentialName;
use super::{InvalidField, schema};

const MAX_BYTES: usize = 16 * 1024;
const MAX_CREDENTIALS: usize = 32;
const WANTED: &str = "a string of 1 to 16384 bytes without NUL";

/// A password, key or token. Its memory is cleared when it is dropped, but not that of the JSON that it was parsed
/// from.
#[derive(Clone, ToSchema)]
#[schema(value_type = String, format = "password", min_length = 1, max_length = 16384, pattern = r"^[^\u0000]*$",
    description = "A secret. It never appears in logs and errors.", examples("not-a-real-secret"))]
pub struct Secret(SecretString);

impl Secret {
    #[must_use]
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(not shown)")
    }
}

/// For tests and for detecting changes; not in constant time, so never compare a caller's secret with it.
impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        self.expose() == other.expose()
    }
}

impl Read for Secret {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let text = at.value.as_str();
        let text = text.filter(|text| (1..=MAX_BYTES).contains(&text.len()) && !text.contains('\0'));
        match text {
            Some(text) => Ok(Self(text.into())),
            None if at.value.as_str() == Some("") => Err(at.invalid(format!("is empty, must be {WANTED}"))),
            None => Err(at.secret_must_be(&at.or_quoted(WANTED))),
        }
    }
}

/// The credentials of a registry or cloud, by name: `username`, `password`, …
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Credentials(BTreeMap<CredentialName, Secret>);

impl Credentials {
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name)
    }

    /// Names and texts, for the response to a cluster, and for encryption.
    #[must_use]
    pub fn revealed(&self) -> BTreeMap<&str, &str> {
        let secrets = self.0.iter();
        secrets.map(|(name, secret)| (name.as_str(), secret.expose())).collect()
    }
}

impl ToSchema for Credentials {}

impl PartialSchema for Credentials {
    fn schema() -> RefOr<Schema> {
        let credentials = ObjectBuilder::new()
            .description(Some(
                "The credentials of a registry or cloud, by name: `username`, `password`, …",
            ))
            .property_names(Some(schema::value::<CredentialName>()))
            .additional_properties(Some(Secret::schema()))
            .max_properties(Some(MAX_CREDENTIALS))
            .examples([serde_json::json!({"username": "ci", "password": "not-a-real-secret"})]);
        credentials.into()
    }
}

impl Read for Credentials {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        let map = at.value.as_object();
        let map = map.ok_or_else(|| at.secret_must_be("an object with string values"))?;
        if map.len() > MAX_CREDENTIALS {
            return Err(at.invalid(format!("has {} names, may have at most {MAX_CREDENTIALS}", map.len())));
        }
        let credentials = map.iter().map(|(key, value)| {
            // The key may be a secret in the wrong place.
            let name: CredentialName = key.parse().map_err(|error: tidewaiter_api::InvalidValue| {
                at.invalid(format!("has a name that is not valid (not shown): {}", error.rule))
            })?;
            Ok((name, Secret::read(&at.at(key, value))?))
        });
        credentials.collect::<Result<_, _>>().map(Self)
    }
}
