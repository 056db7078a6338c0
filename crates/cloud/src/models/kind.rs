//! The kinds of objects. What differs between them is in [`Facts`](super::resource::Facts), which a
//! [`Resource`](super::resource::Resource) states beside its model.

use serde_json::{Map, Value};
use uuid::Uuid;

use super::resource::MAX_SPEC;
use super::{Document, InvalidField, Kind, Unknown, document};

/// Defines the enum of kinds. The facts of a resource are stated beside its model; those of the others here.
macro_rules! kinds {
    (
        resources { $($kind:ident: $spec:ident,)+ }
        others { $($(#[$other_doc:meta])* $other:ident: $facts:expr,)+ }
    ) => {
        /// A kind of object. A resource refers only to resources that are listed before it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = concat!("That of a [`", stringify!($spec), "`].")] $kind,)+
            $($(#[$other_doc])* $other,)+
        }

        impl Kind {
            pub const ALL: &'static [Self] = &[$(Self::$kind,)+ $(Self::$other,)+];

            /// Its name in documents.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$kind => stringify!($kind),)+
                    $(Self::$other => stringify!($other),)+
                }
            }

            /// Returns the properties that distinguish it from other kinds.
            #[must_use]
            pub const fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$kind => const { &<$spec as Resource>::FACTS },)+
                    $(Self::$other => const { &$facts },)+
                }
            }

            /// The functions of a resource; `None` for other kinds.
            #[must_use]
            pub const fn code(self) -> Option<&'static Code> {
                match self {
                    $(Self::$kind => Some(const { &Code::of::<$spec>() }),)+
                    _ => None,
                }
            }
        }
    };
}
pub(super) use kinds;

impl Kind {
    /// Its name in the store, the audit log, the events and the command line.
    #[must_use]
    pub const fn word(self) -> &'static str {
        self.facts().word
    }

    /// Its name in messages, with an article.
    #[must_use]
    pub const fn singular(self) -> &'static str {
        self.facts().singular
    }

    /// The kind with the name `word`.
    #[must_use]
    pub fn of(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|kind| kind.word() == word)
    }

    /// The kind with the name `word` on the change stream of a cluster; `None` if there is no such event.
    #[must_use]
    pub fn of_event(word: &str) -> Option<Self> {
        Self::of(word).filter(|kind| kind.facts().event == Some(*kind))
    }

    /// The kinds that clients create and change as documents, in the order in which they refer to each other.
    pub fn resources() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|kind| kind.code().is_some())
    }

    /// The kinds that are deleted with an object of this kind: those whose `parent_id` is its id.
    pub fn children(self) -> impl Iterator<Item = Self> {
        let is_child = move |kind: &Self| kind.facts().parents.contains(&self);
        Self::ALL.iter().copied().filter(is_child)
    }

    /// The kind whose id precedes the list of these objects in a path.
    #[must_use]
    pub fn parent(self) -> Option<Self> {
        self.facts().parents.first().copied()
    }

    /// Parses a spec of this kind. An unknown field is an error.
    pub fn read(self, bytes: &[u8]) -> Result<Document, InvalidField> {
        self.read_tree(&document::parse(bytes, MAX_SPEC)?, Unknown::Refuse)
    }

    /// As [`read`](Self::read), from JSON without duplicate keys.
    pub fn read_value(self, said: &Value) -> Result<Document, InvalidField> {
        document::check_size(said.to_string().len(), MAX_SPEC)?;
        self.read_tree(said, Unknown::Refuse)
    }

    /// Reads a change of an object whose spec is `before`: an older version stored larger ones than
    /// [`read_value`](Self::read_value) accepts, and these must not grow.
    pub fn read_changed(self, said: &Value, before: &Map<String, Value>) -> Result<Document, InvalidField> {
        let size = |value: &_| serde_json::to_string(value).map_or(usize::MAX, |text| text.len());
        if said.to_string().len() > size(before) {
            return self.read_value(said);
        }
        self.read_tree(said, Unknown::Refuse)
    }

    /// Reads a value as [`read_value`](Self::read_value), from a spec that was accepted before: newer rules about
    /// secrets do not apply to it.
    pub fn read_accepted(self, said: &Value) -> Result<Document, InvalidField> {
        self.read_tree(said, Unknown::Ignore)
    }

    fn read_tree(self, said: &Value, unknown: Unknown) -> Result<Document, InvalidField> {
        let unwritable = || InvalidField::whole(format!("cannot be written as {}", self.singular()));
        (self.code().ok_or_else(unwritable)?.read)(said, unknown)
    }

    /// A stored spec in the form in which this version writes it, which may differ from that of the version that stored
    /// it.
    #[must_use]
    pub fn current(self, stored: Map<String, Value>) -> Map<String, Value> {
        match self.code() {
            Some(code) if self.facts().has_older_forms => (code.current)(stored),
            _ => stored,
        }
    }

    /// Returns true if a change (or deletion) of such an object may affect the identity or the permissions of a caller.
    /// A new token or cluster had no identity before, and the status that a cluster reports gives it no permissions. A
    /// change of a user or a service account may end its tokens, which are deleted later.
    #[must_use]
    pub const fn decides_who_may(self, deleted: bool) -> bool {
        match self {
            Self::Membership | Self::Operator | Self::Organization | Self::User | Self::ServiceAccount => true,
            Self::Token | Self::Cluster | Self::ApiKey => deleted,
            _ => false,
        }
    }

    /// Returns the identity that a change of the object `id` may affect: a user's, or that of the object itself.
    #[must_use]
    pub fn decides_for(self, id: &str, deleted: bool) -> Option<Uuid> {
        // The id of a membership ends with the user's.
        let own = id.rsplit('.').next().unwrap_or_default();
        self.decides_who_may(deleted)
            .then(|| Uuid::try_parse(own).unwrap_or_default())
    }
}
