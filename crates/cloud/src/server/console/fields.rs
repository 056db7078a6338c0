//! The fields of a form.

use axum::body::Body;
use bytes::Bytes;
use http::StatusCode;

use super::Console;
use super::api::Problem;
use crate::server::http::body::read_up_to;
use crate::server::refusal::Refusal;

/// The maximum size of a form in bytes, and its maximum number of fields.
pub(super) type FormLimits = (usize, usize);

/// The limits of a form of a signed-in person: the bytes are those of a document of the API.
pub(super) const SIGNED_IN: FormLimits = (crate::models::MAX_SPEC, 4_096);
/// The limits of a form of anybody else.
pub(super) const UNAUTHENTICATED: FormLimits = (8 * 1024, 64);

/// The fields of a form, in their order. A field with several values is there several times. Values are read without
/// the space around them, except passwords.
pub(super) struct FormFields(Vec<(String, String)>);

impl FormFields {
    pub(super) fn parse(text: &[u8]) -> Self {
        let pairs = url::form_urlencoded::parse(text);
        Self(
            pairs
                .map(|(name, value)| (name.into_owned(), value.into_owned()))
                .collect(),
        )
    }

    /// The first value of a field.
    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.all(name).next()
    }

    /// The value of a field with a password, as it was entered; `None` if it was left empty.
    pub(super) fn secret(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(key, value)| key == name && !value.is_empty());
        found.map(|(_, value)| value.as_str())
    }

    /// The value of a field; `None` if it was left empty.
    pub(super) fn filled(&self, name: &str) -> Option<&str> {
        self.get(name).filter(|value| !value.is_empty())
    }

    /// All fields with their values.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.trim()))
    }

    pub(super) fn all(&self, name: &str) -> impl Iterator<Item = &str> {
        let named = self.0.iter().filter(move |(key, _)| key == name);
        named.map(|(_, value)| value.trim())
    }
}

/// Reads a form, within the time and the memory for bodies of clients who are not known.
pub(super) async fn read(
    console: &Console,
    body: Body,
    (max_bytes, max_fields): FormLimits,
) -> Result<FormFields, Problem> {
    let app = &console.app;
    let read = app
        .limits
        .unauthenticated_bodies
        .read(read_up_to(&*app.clock, max_bytes, body));
    let bytes: Bytes = read.await.map_err(Problem::from)?;
    // Each field takes more memory than its bytes.
    if bytes.split(|byte| *byte == b'&').count() > max_fields {
        let message = format!("the form has more than {max_fields} fields");
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, message).into());
    }
    Ok(FormFields::parse(&bytes))
}
