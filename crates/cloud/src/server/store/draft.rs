//! What is asked of a writer: by whom, and which object.

use serde_json::{Map, Value};

use crate::server::kind::Kind;

/// Who makes a change, on which request.
#[derive(Clone, Debug, Default)]
pub struct Author {
    /// `user:ID`, `cluster:ID` or `system`.
    pub actor: String,
    /// The id of the request.
    pub request_id: String,
}

/// What other objects have to do with one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct References {
    /// Under which name no other may be there.
    pub name: Option<Name>,
    /// To which objects it refers.
    pub uses: Vec<(Kind, String)>,
}

/// A name that is taken once within a scope.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// The scope: mostly what the object stands below.
    pub scope: String,
    /// The name.
    pub name: String,
    /// The field, for the message.
    pub field: &'static str,
}

/// An object that is to be.
#[derive(Clone, Debug)]
pub struct Draft {
    /// Its kind.
    pub kind: Kind,
    /// Unique among its kind.
    pub id: String,
    /// Whose it will be.
    pub organization_id: String,
    /// Which cluster it concerns, or empty.
    pub cluster_id: String,
    /// Below what it will stand.
    pub parent_id: String,
    /// Which user makes it, or empty.
    pub owner_id: String,
    /// What is said of it.
    pub spec: Map<String, Value>,
    /// What nothing shows.
    pub secret: String,
    /// What others have to do with it.
    pub ties: References,
}
