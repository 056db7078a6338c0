//! The requests to the server and their effects.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::call::Verb;
use super::status::Refused;
use super::store::{Done, Key, Store, Stored};

/// A write that arrived at the server, with what became of it.
#[derive(Clone, Debug)]
pub struct Write {
    /// When it arrived, since the server's start.
    pub at: Duration,
    /// The process, or the actor without one.
    pub by: String,
    /// The requested verb.
    pub verb: Verb,
    /// The plural of the kind.
    pub resource: String,
    /// Empty for a kind without namespaces.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The status of the answer: the error, if it was refused.
    pub code: u16,
    before: Option<Arc<Stored>>,
    after: Option<Arc<Stored>>,
}

impl Write {
    pub(super) fn new(by: &str, verb: Verb, key: &Key, result: &Result<Done, Refused>, store: &Store) -> Self {
        let (key, code, before, after) = match result {
            Ok(done) => (&done.key, done.code(), done.before.clone(), done.after.clone()),
            Err(refused) => (key, refused.code, None, None),
        };
        Self {
            at: store.now,
            by: by.to_owned(),
            verb,
            resource: store.kinds[key.kind].plural.clone(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            code,
            before,
            after,
        }
    }

    /// Returns true if it was accepted.
    #[must_use]
    pub fn is_accepted(&self) -> bool {
        self.code < 300
    }

    /// The object before the write; `None` when there was none, or the write was refused.
    #[must_use]
    pub fn before(&self) -> Option<&Value> {
        self.before.as_deref().map(|object| &object.value)
    }

    /// The object after the write; `None` when there is none, or the write was refused.
    #[must_use]
    pub fn after(&self) -> Option<&Value> {
        self.after.as_deref().map(|object| &object.value)
    }

    /// Returns true if it was accepted and changed something.
    #[must_use]
    pub fn has_changed(&self) -> bool {
        match (&self.before, &self.after) {
            (Some(before), Some(after)) => !Arc::ptr_eq(before, after),
            (None, None) => false,
            _ => true,
        }
    }
}

impl Display for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            by,
            verb,
            resource,
            namespace,
            name,
            code,
            ..
        } = self;
        let slash = if namespace.is_empty() { "" } else { "/" };
        let at = self.at.as_secs_f64();
        let verb = verb.as_str();
        write!(f, "{at:11.4} {by}: {verb} {resource} {namespace}{slash}{name}: {code}")?;
        match self.after() {
            Some(after) => write!(f, " {after}"),
            None => Ok(()),
        }
    }
}

/// The objects of a server at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a>(pub(super) &'a Store);

impl<'a> Objects<'a> {
    /// An object by the plural of its kind; `namespace` is empty for a kind without.
    #[must_use]
    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<&'a Value> {
        let key = Key::new(self.0.plural(resource), namespace, name);
        self.0.get(&key).map(|object| &object.value)
    }

    /// All objects of a kind, by namespace and name.
    pub fn all(&self, resource: &str) -> impl Iterator<Item = &'a Value> {
        self.0.of_kind(self.0.plural(resource)).map(|(_, object)| &object.value)
    }
}

/// Sees each write as it is sent and as it takes effect. Called with the server locked: it must not call the server.
pub trait Observer: Send {
    /// A process gives out a write; it may be lost, or arrive later.
    fn sent(&mut self, _by: &str, _verb: Verb, _resource: &str, _objects: Objects<'_>) {}

    /// A write has arrived; `objects` is what there is after it.
    fn written(&mut self, _write: &Write, _objects: Objects<'_>) {}
}

/// A request of a process, reads included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SentRequest {
    /// When it was sent, since the server's start.
    pub at: Duration,
    /// The process.
    pub by: String,
    /// The requested verb.
    pub verb: Verb,
    /// The plural of the kind.
    pub resource: String,
    /// The name of the object; empty for a collection.
    pub name: String,
}
