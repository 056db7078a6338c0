//! The input of a write, besides the object: its author, its unique name and its references.

use crate::models::{Kind, UniqueName};

/// The author of a change, and the request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Author {
    /// `user:ID`, `cluster:ID` or `system`.
    pub actor: String,
    pub origin: Origin,
    /// The organization, or the actor outside of organizations: its writes wait for each other.
    pub queue: String,
}

impl Author {
    /// The author of what the server does itself.
    pub fn system() -> Self {
        Self {
            actor: "system".to_owned(),
            ..Self::default()
        }
    }
}

/// A request, as the audit log names it. One column has all three parts, which contain no spaces, because backups of
/// all versions have the same columns; the rows of earlier versions have an id alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The id that the server gave it.
    pub id: String,
    /// The address of the client.
    pub address: String,
    /// The id that the client gave it, if there is one.
    pub client_id: String,
}

impl Origin {
    /// The text of the column.
    pub(super) fn text(&self) -> String {
        let text = format!("{} {} {}", self.id, self.address, self.client_id);
        text.trim_end().to_owned()
    }

    pub(super) fn read(text: &str) -> Self {
        let [id, address, client_id] = Self::parts(text).map(str::to_owned);
        Self { id, address, client_id }
    }

    /// The parts of the column: id, address, and the client's id.
    pub(super) fn parts(text: &str) -> [&str; 3] {
        let mut parts = text.split(' ');
        [(); 3].map(|()| parts.next().unwrap_or_default())
    }
}

/// The unique name and the references of an object.
#[derive(Clone, Debug, Default)]
pub struct References {
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
