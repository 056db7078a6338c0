//! Decodes one object at a time, so that an object that our type refuses never fails the list or the watch that brings
//! it.
//!
//! The text of each object is taken out of the response first, without looking at its content, and decoded by itself:
//! an object that is nested deeper than the parser allows fails alone, too. kube's `DeserializeGuard` parses each
//! object into a tree of values within the response, so such an object fails the whole response. The text can be taken
//! out of a watch event only if its type stands before its object, as in the events of every API server; any other
//! event fails the watch, which then lists.
//!
//! The error about an object quotes the value that is wrong, except for kinds that hold secrets: no part of serde's
//! text about these is shown, because the value may look like the rest of it.

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

/// The kinds whose values never appear in an error: it is logged, published in an Event and shown by commands.
const SECRET_KINDS: [&str; 2] = ["Secret", "Registry"];

/// An object, or what is known of one that cannot be decoded.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Undecodable>);

/// An object that our type refuses.
#[derive(Clone, Debug)]
pub struct Undecodable {
    /// Name, namespace, uid and version; nothing else.
    pub metadata: ObjectMeta,
    /// The error, with the field where the type names it. It can quote the object, unless its kind holds secrets:
    /// escape it before it is shown.
    pub error: String,
}

impl<'de, K: Resource<DynamicType = ()> + DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Box::<RawValue>::deserialize(deserializer)?;
        if let Ok(object) = serde_json::from_str(text.get()) {
            return Ok(Self(Ok(object)));
        }
        let error = error::<K>(text.get());
        match serde_json::from_str(text.get()) {
            Ok(Named { metadata }) => {
                let metadata = metadata.into();
                Ok(Self(Err(Undecodable { metadata, error })))
            }
            Err(_) => Err(D::Error::custom(error)),
        }
    }
}

/// The reason why `text` is no `K`: the path of the field, its value and what is expected; of a kind that holds
/// secrets, only the path. Decodes once more, because the path costs time.
fn error<K: Resource<DynamicType = ()> + DeserializeOwned>(text: &str) -> String {
    let mut parser = serde_json::Deserializer::from_str(text);
    match serde_path_to_error::deserialize::<_, K>(&mut parser) {
        Ok(_) => String::new(),
        Err(error) if SECRET_KINDS.contains(&K::kind(&()).as_ref()) => format!(
            "{}: the value is not of the expected type, or lacks a field; it is not shown, because it may be a secret",
            error.path()
        ),
        Err(error) => error.to_string(),
    }
}

/// Of an object that cannot be decoded, only what names it, which the API server has checked.
#[derive(Deserialize)]
struct Named {
    metadata: Identity,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Identity {
    name: String,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
}

impl From<Identity> for ObjectMeta {
    fn from(identity: Identity) -> Self {
        Self {
            name: Some(identity.name),
            namespace: identity.namespace,
            uid: identity.uid,
            resource_version: identity.resource_version,
            ..Self::default()
        }
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> std::borrow::Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|bad| &bad.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|bad| &mut bad.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests;
