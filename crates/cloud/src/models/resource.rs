//! The facts of a kind of the API beside its model, stated once: the endpoints, the description, the store, the client
//! and the command line follow from it.

use std::any::Any;
use std::borrow::Cow;
use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};
use tidewaiter_api::values::quoted;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::fields::{At, Read as _};
use super::schema::Described;
use super::{Credentials, InvalidField, Kind, Model, OrgRole, Unknown};

/// The maximum size of a spec, in bytes. As a tree of values it takes up to a hundred times as much.
pub const MAX_SPEC: usize = 64 * 1024;

/// A kind of the API, implemented by what clients send of it: its spec.
pub trait Resource: Model + Serialize + ToSchema + Send + Sync + 'static {
    /// The object as clients read it, with the fields that the server sets.
    type Object: Model + ToSchema;

    const FACTS: Facts;

    /// Returns the name that must be unique among its siblings, from its `fields` as they are stored: by default the
    /// fields of [`Facts::key`].
    fn name(&self, fields: &Map<String, Value>) -> Option<UniqueName> {
        UniqueName::of_fields(Self::FACTS.key, fields)
    }

    /// The objects that it refers to.
    fn uses(&self) -> Vec<Use> {
        Vec::new()
    }

    /// The credentials to encrypt.
    fn credentials(&self) -> Option<&Credentials> {
        None
    }

    /// The response to a request for one object, if it has more fields than an object in a list.
    #[must_use]
    fn shown() -> Body {
        Body::of::<Self::Object>()
    }

    /// The response to the request that creates the object, if it has fields that are shown only once.
    #[must_use]
    fn created() -> Body {
        Self::shown()
    }
}

/// The properties that distinguish a kind from others.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is independent of the others")]
pub struct Facts {
    /// Its name in the store, the audit log, the events and the command line.
    pub word: &'static str,
    /// Its name in messages, with an article.
    pub singular: &'static str,
    /// The kinds that own objects of this kind; they are deleted with their owner. The path of a list has the first.
    pub parents: &'static [Kind],
    /// The kind that is listed again after a change, as named on the change stream; `None` if clusters do not mirror
    /// it.
    pub event: Option<Kind>,
    /// The maximum number of such objects in an organization, of tokens those of one user, unless the operator of the
    /// server sets another one.
    pub quota: i64,
    /// The last part of the path of the list.
    pub segment: &'static str,
    /// The section in the description of the API.
    pub tag: &'static str,
    /// True if its endpoints are rows of their own, not the six of all kinds.
    pub has_own_endpoints: bool,
    /// The minimum role that may change an object.
    pub writers: OrgRole,
    /// True if clusters may read it.
    pub is_for_clusters: bool,
    /// The fields that the server sets. If a client sends them back, they must be unchanged.
    pub generated: &'static [&'static str],
    /// True if older versions stored it in another form, so that it is read again before it is shown.
    pub has_older_forms: bool,
    /// The query parameters of the list.
    pub list_query: &'static [Parameter],
    /// The query parameters of an object.
    pub item_query: &'static [Parameter],
    /// The fields that together are the name of an object. An error about the name is about the last.
    pub key: &'static [&'static str],
    /// The columns of a table of the command line, besides the id.
    pub columns: &'static [&'static str],
    /// Its description in the help of the command line.
    pub about: &'static str,
    /// Other names of the kind on the command line.
    pub aliases: &'static [&'static str],
    /// True if `apply` supports it.
    pub is_declared: bool,
}

impl Facts {
    /// The facts of a typical resource. The server sets the fields that its object has besides those of the spec.
    #[must_use]
    pub const fn of<R: Resource>(kind: Kind, word: &'static str, parents: &'static [Kind]) -> Self {
        Self {
            event: Some(kind),
            generated: R::Object::OWN,
            ..Self::internal(word, R::KIND, 1_000, parents)
        }
    }

    /// The facts of a kind that no document names: clients see its objects through endpoints of their own, if at all.
    #[must_use]
    pub const fn internal(word: &'static str, singular: &'static str, quota: i64, parents: &'static [Kind]) -> Self {
        Self {
            word,
            singular,
            parents,
            event: None,
            quota,
            segment: word,
            tag: "",
            has_own_endpoints: false,
            writers: OrgRole::Admin,
            is_for_clusters: true,
            generated: &["id", "created_at"],
            has_older_forms: false,
            list_query: &[],
            item_query: &[],
            key: &["name"],
            columns: &["name"],
            about: "",
            aliases: &[],
            is_declared: true,
        }
    }
}

/// The functions of a [`Resource`], for code that handles every kind.
#[derive(Debug)]
pub struct Code {
    pub read: fn(&Value, Unknown) -> Result<Document, InvalidField>,
    /// A stored spec in the form in which this version writes it.
    pub current: fn(Map<String, Value>) -> Map<String, Value>,
    /// The body of a request.
    pub spec: fn() -> Body,
    /// An object in a list.
    pub listed: fn() -> Body,
    pub shown: fn() -> Body,
    pub created: fn() -> Body,
}

impl Code {
    #[must_use]
    pub const fn of<R: Resource>() -> Self {
        Self {
            read: read::<R>,
            current: current::<R>,
            spec: Body::of::<R>,
            listed: Body::of::<R::Object>,
            shown: R::shown,
            created: R::created,
        }
    }
}

/// A parsed spec, and what the store needs of it.
#[derive(Debug)]
pub struct Document {
    typed: Box<dyn Any + Send + Sync>,
    /// The fields that are stored and returned.
    pub spec: Map<String, Value>,
    /// Credentials as JSON, which are stored encrypted; `None` if there are none.
    pub credentials: Option<Credential>,
    /// The name that must be unique among its siblings.
    pub name: Option<UniqueName>,
    /// The objects that it refers to.
    pub uses: Vec<Use>,
}

impl Document {
    /// Returns the parts of a spec that the store needs.
    pub fn of<R: Resource>(said: R) -> Result<Self, InvalidField> {
        let spec = match serde_json::to_value(&said) {
            Ok(Value::Object(spec)) => spec,
            Ok(_) => return Err(InvalidField::whole("must be an object")),
            Err(error) => return Err(InvalidField::whole(format!("cannot be written: {error}"))),
        };
        let credentials = match said.credentials().map(Credentials::revealed) {
            Some(shown) if !shown.is_empty() => {
                let text = serde_json::to_string(&shown)
                    .map_err(|_| InvalidField::whole("has credentials that cannot be written"))?;
                Some(Credential(Zeroizing::new(text)))
            }
            _ => None,
        };
        Ok(Self {
            name: said.name(&spec),
            uses: said.uses(),
            spec,
            credentials,
            typed: Box::new(said),
        })
    }

    /// The spec as its type; None if it is of another kind.
    #[must_use]
    pub fn typed<R: Resource>(&self) -> Option<&R> {
        self.typed.downcast_ref()
    }
}

/// The text of credentials, cleared when it is dropped.
pub struct Credential(pub Zeroizing<String>);

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not shown")
    }
}

/// A reference of a field to an object of the same organization.
#[derive(Clone, Debug, PartialEq)]
pub struct Use {
    /// The field, for the message.
    pub field: String,
    /// The kind of the object; [`Kind::User`] means a member of the organization.
    pub kind: Kind,
    pub id: String,
}

impl Use {
    /// The reference of `field` to the object with this id.
    pub fn new(field: impl Into<String>, kind: Kind, id: &impl ToString) -> Self {
        Self {
            field: field.into(),
            kind,
            id: id.to_string(),
        }
    }
}

/// A name that must be unique among siblings: the value of one field, or of several together.
#[derive(Clone, Debug, PartialEq)]
pub struct UniqueName {
    /// The field that a message names.
    pub field: &'static str,
    /// The name in the store.
    pub name: String,
    /// Every field of the name with its value, for a message.
    pub key: String,
}

impl UniqueName {
    /// The values of `fields`, of which `field` is the one that a message names.
    #[must_use]
    pub fn of(field: &'static str, fields: &[(&str, &str)]) -> Self {
        let values: Vec<_> = fields.iter().map(|(_, value)| *value).collect();
        let set = fields.iter().filter(|(_, value)| !value.is_empty());
        let set: Vec<_> = set.map(|(field, value)| format!("{field} {}", quoted(value))).collect();
        Self {
            field,
            name: values.join(" "),
            key: set.join(" and "),
        }
    }

    /// The values of the fields `key` of an object; `None` if it has none of them.
    fn of_fields(key: &[&'static str], fields: &Map<String, Value>) -> Option<Self> {
        let value = |field: &&'static str| (*field, fields.get(*field).and_then(Value::as_str).unwrap_or_default());
        let values: Vec<_> = key.iter().map(value).collect();
        let is_named = values.iter().any(|(_, value)| !value.is_empty());
        Some(Self::of(key.last()?, &values)).filter(|_| is_named)
    }
}

fn read<R: Resource>(said: &Value, unknown: Unknown) -> Result<Document, InvalidField> {
    Document::of(R::read(&At::root(said, unknown))?)
}

/// A stored spec as its model. Rules about secrets that are newer than it do not apply.
pub fn stored<M: Model>(spec: &Map<String, Value>) -> Result<M, InvalidField> {
    M::read(&At::root(&Value::Object(spec.clone()), Unknown::Ignore))
}

/// `stored` in the form in which this version writes the model `M`.
#[must_use]
pub fn current<M: Model + Serialize>(stored: Map<String, Value>) -> Map<String, Value> {
    match serde_json::to_value(self::stored::<M>(&stored).ok()) {
        Ok(Value::Object(current)) => current,
        _ => stored,
    }
}

/// The schema of a body, with its name in the description of the API.
#[derive(Clone, Copy, Debug)]
pub struct Body {
    pub name: &'static str,
    pub described: fn() -> Described,
}

impl Body {
    /// The body with the schema of `T`.
    #[must_use]
    pub fn of<T: ToSchema>() -> Self {
        Self {
            name: match T::name() {
                Cow::Borrowed(name) => name,
                Cow::Owned(name) => name.leak(),
            },
            described: Described::of::<T>,
        }
    }

    /// The same schema with another name.
    #[must_use]
    pub fn named(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}

impl PartialEq for Body {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for Body {}

/// A parameter of the query.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    pub name: &'static str,
    pub description: &'static str,
    pub form: ParameterType,
    pub required: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParameterType {
    Bool,
    Id,
    Version,
    /// One of these values.
    Words(&'static [&'static str]),
    /// An integer from 1 to this maximum.
    Number(u32),
}
