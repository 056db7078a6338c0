//! Objects whose fields the server does not know: it stores them, and limits their depth.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::openapi::schema::AdditionalProperties;
use utoipa::openapi::{RefOr, Schema};

use super::fields::{At, Read};
use super::{InvalidField, schema};

/// An object with fields that are stored unchanged. `Debug` shows only their number, because any of them may be secret.
#[derive(Clone, Default, PartialEq, Serialize)]
#[serde(transparent)]
pub struct OpenObject(pub Map<String, Value>);

impl fmt::Debug for OpenObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenObject({} fields)", self.0.len())
    }
}

impl utoipa::ToSchema for OpenObject {}

impl utoipa::PartialSchema for OpenObject {
    fn schema() -> RefOr<Schema> {
        let object = schema::object("An object whose fields are stored unchanged.");
        object
            .additional_properties(Some(AdditionalProperties::FreeForm(true)))
            .into()
    }
}

/// The maximum depth of an open object. A parser reads 128 levels, and responses put the object into others.
const MAX_LEVELS: usize = 32;

impl Read for OpenObject {
    fn read(at: &At<'_>) -> Result<Self, InvalidField> {
        Self::with_levels(at, MAX_LEVELS)
    }
}

impl OpenObject {
    /// An object with at most `most` levels.
    pub(super) fn with_levels(at: &At<'_>, most: usize) -> Result<Self, InvalidField> {
        let map = at.map()?;
        let levels = levels(at.value);
        if levels > most {
            return Err(at.invalid(format!(
                "has {levels} levels of objects and lists, may have at most {most}"
            )));
        }
        Ok(Self(map.clone()))
    }
}

fn levels(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or_default(),
        Value::Object(map) => 1 + map.values().map(levels).max().unwrap_or_default(),
        _ => 0,
    }
}
