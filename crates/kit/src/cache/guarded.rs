//! Decodes one object at a time, so that an object that our type refuses never fails the list or the watch that brings it.
//!
//! The text of each object is taken out of the response first, without looking at its content, and decoded by itself: an object that
//! is nested deeper than the parser allows fails alone, too. kube's `DeserializeGuard` parses each object into a tree of values
//! within the response, so such an object fails the whole response.

use std::fmt;

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::value::MapAccessDeserializer;
use serde::de::{DeserializeOwned, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An object, or what is known of one that cannot be decoded.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Undecodable>);

/// An object that our type refuses.
#[derive(Clone, Debug)]
pub struct Undecodable {
    /// Name, namespace, uid and version; nothing else.
    pub metadata: ObjectMeta,
    /// What is wrong, with the field where the type names it. It can quote the object: escape it before it is shown.
    pub error: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = deserializer.deserialize_newtype_struct(RAW_VALUE, ObjectVisitor)?;
        let error = match object.decode() {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => error.to_string(),
        };
        match object.decode() {
            Ok(Named { metadata }) => {
                let metadata = metadata.into();
                Ok(Self(Err(Undecodable { metadata, error })))
            }
            Err(_) => Err(D::Error::custom(error)),
        }
    }
}

/// The name by which [`RawValue`] asks `serde_json` for the text of a value.
const RAW_VALUE: &str = "$serde_json::private::RawValue";

/// An object that is not decoded yet.
enum Object {
    Text(Box<RawValue>),
    /// Of an event whose object stands before its type: serde has parsed it by then. API servers send the type first.
    Tree(Value),
}

impl Object {
    /// On failure once more, for the path of the field.
    fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_path_to_error::Error<serde_json::Error>> {
        match self {
            Self::Text(text) => serde_json::from_str(text.get()).or_else(|_| {
                let mut parser = serde_json::Deserializer::from_str(text.get());
                serde_path_to_error::deserialize(&mut parser)
            }),
            Self::Tree(tree) => T::deserialize(tree).or_else(|_| serde_path_to_error::deserialize(tree)),
        }
    }
}

struct ObjectVisitor;

impl<'de> Visitor<'de> for ObjectVisitor {
    type Value = Object;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Object, A::Error> {
        Box::<RawValue>::deserialize(MapAccessDeserializer::new(map)).map(Object::Text)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<Object, D::Error> {
        Value::deserialize(deserializer).map(Object::Tree)
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
mod tests {
    use kube::api::WatchEvent;
    use kube::core::ObjectList;
    use serde_json::json;

    use super::*;

    #[derive(Clone, Debug, Deserialize, kube::Resource)]
    #[resource(inherit = k8s_openapi::api::core::v1::Node)]
    struct Strict {
        metadata: ObjectMeta,
        #[serde(rename = "spec")]
        _spec: Spec,
    }

    #[derive(Clone, Debug, Deserialize)]
    struct Spec {
        #[serde(rename = "podCIDR")]
        _pod_cidr: std::net::IpAddr,
    }

    fn object(name: &str, value: &str) -> serde_json::Value {
        json!({"metadata": {"name": name, "uid": "u"}, "spec": {"podCIDR": value}})
    }

    #[test]
    fn a_bad_object_does_not_fail_its_list() {
        let list = json!({"apiVersion": "v1", "kind": "NodeList", "metadata": {"resourceVersion": "7"},
            "items": [object("good", "10.0.0.0"), object("bad", "junk"), object("other", "::1")]});
        let list: ObjectList<Guarded<Strict>> = serde_json::from_str(&list.to_string()).unwrap();
        let names: Vec<_> = list
            .items
            .iter()
            .map(|it| (it.meta().name.as_deref().unwrap(), it.0.is_ok()))
            .collect();
        assert_eq!(names, [("good", true), ("bad", false), ("other", true)]);
        let error = &list.items[1].0.as_ref().unwrap_err().error;
        assert!(
            error.starts_with("spec.podCIDR: ") && error.contains("IP address"),
            "{error}"
        );
    }

    #[test]
    fn a_bad_object_does_not_fail_its_watch() {
        let event = json!({"type": "MODIFIED", "object": object("bad", "junk")}).to_string();
        let WatchEvent::Modified(it) = serde_json::from_str::<WatchEvent<Guarded<Strict>>>(&event).unwrap() else {
            panic!("not a modification")
        };
        assert_eq!(it.meta().uid.as_deref(), Some("u"));
        assert!(it.0.is_err());
    }

    /// Every client with permission to write an object can write its managed fields, nested to any depth.
    fn deep(depth: usize) -> String {
        format!("{}1{}", "{\"f:a\":".repeat(depth), "}".repeat(depth))
    }

    #[test]
    fn an_object_that_is_nested_too_deep_does_not_fail_its_list() {
        for depth in [200, 100_000] {
            let bad = format!(
                r#"{{"metadata": {{"name": "bad"}}, "spec": {{"podCIDR": {}}}}}"#,
                deep(depth)
            );
            let list = format!(
                r#"{{"metadata": {{"resourceVersion": "7"}}, "items": [{bad}, {}]}}"#,
                object("good", "::1")
            );
            let list: ObjectList<Guarded<Strict>> = serde_json::from_str(&list).unwrap();
            let decoded: Vec<_> = list.items.iter().map(|it| it.0.is_ok()).collect();
            assert_eq!(decoded, [false, true], "{depth}");
            assert_eq!(list.items[0].meta().name.as_deref(), Some("bad"));
        }
    }

    #[test]
    fn what_a_type_does_not_read_may_be_nested_as_deep_as_it_likes() {
        let managed = deep(100_000);
        let event = format!(
            r#"{{"type": "ADDED", "object": {{"metadata": {{"name": "n"}}, "spec": {{"podCIDR": "::1", "other": {managed}}}}}}}"#
        );
        let event = serde_json::from_str::<WatchEvent<Guarded<Strict>>>(&event).unwrap();
        assert!(matches!(event, WatchEvent::Added(Guarded(Ok(_)))));
    }
}
