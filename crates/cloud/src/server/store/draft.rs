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

/// The unique name and the references of an object.
#[derive(Clone, Debug, Default)]
pub struct References {
    /// The unique name.
    pub name: Option<UniqueName>,
    /// The scope of the name: usually the object's parent.
    pub scope: String,
    /// The objects that it refers to.
    pub uses: Vec<(Kind, String)>,
}

impl References {
    /// A single reference.
    pub fn to(kind: Kind, id: &str) -> Self {
        Self {
            uses: vec![(kind, id.to_owned())],
            ..Self::default()
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

impl Draft {
    /// An object with nothing but a kind and an id.
    pub fn new(kind: Kind, id: impl Into<String>) -> Self {
        Self {
            kind,
            id: id.into(),
            organization_id: String::new(),
            cluster_id: String::new(),
            parent_id: String::new(),
            owner_id: String::new(),
            spec: Map::new(),
            secret: String::new(),
            ties: References::default(),
        }
    }
}
