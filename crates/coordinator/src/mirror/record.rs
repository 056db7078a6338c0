//! What the cloud's record of deletions says of a kind. By it, a list that lacks an object is told from one that is
//! wrong.

use std::collections::BTreeSet;

/// The record, as it was read after the last list: so it names each deletion that the list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Record {
    /// The cloud has none: it is older than the record.
    Absent,
    /// It could not be read.
    Unread,
    /// It names these objects, by the names of their resources.
    Names(BTreeSet<String>),
}

impl Record {
    /// Whether it names the object.
    pub(super) fn names(&self, name: &str) -> bool {
        matches!(self, Self::Names(names) if names.contains(name))
    }

    /// Whether the cloud has a record that does not name the object, as far as it could be read.
    pub(super) fn lacks(&self, name: &str) -> bool {
        match self {
            Self::Absent => false,
            Self::Unread => true,
            Self::Names(names) => !names.contains(name),
        }
    }
}
