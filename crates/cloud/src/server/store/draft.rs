//! The input of a write, besides the object: its author, its unique name and its references.

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
