//! The input of a write: its author and the object.

use serde_json::{Map, Value};

use crate::models::{Kind, UniqueName};

/// The author of a change, and the request.
#[derive(Clone, Debug, Default)]
pub struct Author {
    /// `user:ID`, `cluster:ID` or `system`.
    pub actor: String,
    /// The id of the request.
    pub request_id: String,
    /// The organization, or the actor outside of organizations: its writes wait for each other.
    pub queue: String,
}

/// The unique names and the references of an object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    /// The unique name.
    pub name: Option<Name>,
    /// The objects that it refers to.
    pub uses: Vec<(Kind, String)>,
}

/// A name that is unique within a scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// The scope: usually the object's parent.
    pub scope: String,
    /// The name.
    pub name: String,
    /// The field, for the message.
    pub field: &'static str,
    /// All fields that the name consists of, with their values, for the message.
    pub key: String,
}

impl Name {
    /// The name `unique` among the objects of `scope`.
    #[must_use]
    pub fn new(unique: UniqueName, scope: String) -> Self {
        let UniqueName { field, name, key } = unique;
        Self {
            scope,
            name,
            field,
            key,
        }
    }
}

/// An object to be created.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its kind.
    pub kind: Kind,
    /// Unique among its kind.
    pub id: String,
    /// Its organization.
    pub organization_id: String,
    /// The cluster that it concerns, or empty.
    pub cluster_id: String,
    /// Its parent.
    pub parent_id: String,
    /// The id of the user who creates it, or empty.
    pub owner_id: String,
    /// Its fields.
    pub spec: Map<String, Value>,
    /// Its secret column.
    pub secret: String,
    /// Its unique names and references.
    pub ties: References,
}
