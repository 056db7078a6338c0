//! The parameters of a request, read from its method, path, query and headers.

use std::collections::BTreeMap;

use bytes::Bytes;
use http::{Method, Request, header};
use serde_json::Value;

use super::kind::Kind;
use super::status::Refused;
use super::store::Key;

/// A verb as RBAC names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verb {
    /// GET of one object.
    Get,
    /// GET of a collection.
    List,
    /// GET of a collection with `watch=true`.
    Watch,
    /// POST.
    Create,
    /// PUT.
    Update,
    /// PATCH.
    Patch,
    /// DELETE of one object.
    Delete,
    /// DELETE of a collection.
    DeleteCollection,
}

impl Verb {
    /// Returns true if it changes objects.
    #[must_use]
    pub fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }

    /// The verb as RBAC spells it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }
}

/// The part of an object that a write is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// All but the status, where that is a subresource.
    Main,
    /// The status subresource.
    Status,
    /// All of it: no client can request that.
    Whole,
}

/// The type of the body of a PATCH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchType {
    Merge,
    Apply,
}

/// A request for something that the server serves.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) verb: Verb,
    /// The place of the kind in the server's table.
    pub(super) kind: usize,
    /// Empty for a kind without namespaces and for all namespaces.
    pub(super) namespace: String,
    /// Empty for a collection.
    pub(super) name: String,
    pub(super) part: Part,
    /// True if only metadata is wanted.
    pub(super) metadata_only: bool,
    pub(super) patch: Option<PatchType>,
    query: BTreeMap<String, String>,
    pub(super) body: Value,
}

impl Call {
    /// Returns the key of the object of the call.
    pub(super) fn key(&self) -> Key {
        Key::new(self.kind, &self.namespace, &self.name)
    }
}

impl Call {
    pub(super) fn read(request: &Request<Bytes>, kinds: &[Kind]) -> Result<Self, Refused> {
        let unknown = || Refused::new(404, "NotFound", "the server could not find the requested resource");
        let place = Path::read(request.uri().path(), kinds).ok_or_else(unknown)?;
        let query = request.uri().query().unwrap_or_default();
        let query: BTreeMap<String, String> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        let watches = matches!(query.get("watch").map(String::as_str), Some("true" | "1"));
        let verb = match (request.method(), place.name.is_empty()) {
            (&Method::GET, true) if watches => Verb::Watch,
            (&Method::GET, true) => Verb::List,
            (&Method::GET, false) => Verb::Get,
            (&Method::POST, true) => Verb::Create,
            (&Method::PUT, false) => Verb::Update,
            (&Method::PATCH, false) => Verb::Patch,
            (&Method::DELETE, false) => Verb::Delete,
            (&Method::DELETE, true) => Verb::DeleteCollection,
            _ => {
                return Err(Refused::new(
                    405,
                    "MethodNotAllowed",
                    "the server does not allow this method",
                ));
            }
        };
        let text = |name| {
            let value = request.headers().get(name).and_then(|value| value.to_str().ok());
            value.unwrap_or_default().to_owned()
        };
        let patch = match text(header::CONTENT_TYPE).as_str() {
            _ if verb != Verb::Patch => None,
            "application/merge-patch+json" => Some(PatchType::Merge),
            "application/apply-patch+yaml" => Some(PatchType::Apply),
            other => return Err(Refused::new(415, "UnsupportedMediaType", format!("patch type {other}"))),
        };
        let body = match request.body() {
            empty if empty.is_empty() => Value::Null,
            bytes => serde_json::from_slice(bytes).map_err(|error| Refused::bad_request(error.to_string()))?,
        };
        Ok(Self {
            verb,
            kind: place.kind,
            namespace: place.namespace.to_owned(),
            name: place.name.to_owned(),
            part: place.part,
            metadata_only: text(header::ACCEPT).contains("as=PartialObjectMetadata"),
            patch,
            query,
            body,
        })
    }

    /// A value of the query; empty when it is not there.
    pub(super) fn query(&self, name: &str) -> &str {
        self.query.get(name).map(String::as_str).unwrap_or_default()
    }

    /// A value of the query that is a whole number.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Refused> {
        match self.query(name) {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| Refused::bad_request(format!("{name}: invalid value {text:?}"))),
        }
    }

    pub(super) fn flag(&self, name: &str) -> bool {
        self.query(name) == "true"
    }

    pub(super) fn manager(&self) -> &str {
        match self.query("fieldManager") {
            "" => "unknown",
            manager => manager,
        }
    }
}

struct Path<'a> {
    kind: usize,
    namespace: &'a str,
    name: &'a str,
    part: Part,
}

impl<'a> Path<'a> {
    fn read(path: &'a str, kinds: &[Kind]) -> Option<Self> {
        let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
        let (group, version, rest) = match segments.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            _ => return None,
        };
        let kind = |plural: &str, namespaced: Option<bool>| {
            kinds.iter().position(|kind| {
                kind.group == group
                    && kind.version == version
                    && kind.plural == plural
                    && namespaced.is_none_or(|namespaced| kind.namespaced == namespaced)
            })
        };
        let (kind, namespace, rest) = match rest {
            // Something in a Namespace, and not the Namespace itself.
            ["namespaces", namespace, plural, rest @ ..] if *plural != "status" => {
                (kind(plural, Some(true))?, *namespace, rest)
            }
            [plural, rest @ ..] => (kind(plural, None)?, "", rest),
            [] => return None,
        };
        let (name, part) = match rest {
            [] => ("", Part::Main),
            [name] => (*name, Part::Main),
            [name, "status"] if kinds[kind].status => (*name, Part::Status),
            _ => return None,
        };
        // One object of a kind with namespaces is in one of them.
        let placed = !kinds[kind].namespaced || !namespace.is_empty() || name.is_empty();
        placed.then_some(Self {
            kind,
            namespace,
            name,
            part,
        })
    }
}
