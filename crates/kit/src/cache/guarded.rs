//! Decodes one object at a time, so that an object that our type refuses never fails the list or the watch that brings it.
//!
//! kube's `DeserializeGuard` does the same, but copies the tree of values into which it parses each object before it decodes it. Here
//! the type borrows from the tree: half of the work for a kind of which we read a twentieth.

use kube::Resource;
use kube::core::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object, or what is known of one that cannot be decoded.
#[derive(Clone, Debug)]
pub struct Guarded<K>(pub Result<K, Undecodable>);

/// An object that our type refuses.
#[derive(Clone, Debug)]
pub struct Undecodable {
    /// Name, namespace, uid and version; nothing else.
    pub metadata: ObjectMeta,
    /// What is wrong, with the field where the type names it. Written by whoever wrote the object: not fit to be shown as it is.
    pub error: String,
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let whole = Value::deserialize(deserializer)?;
        let error = match K::deserialize(&whole) {
            Ok(object) => return Ok(Self(Ok(object))),
            Err(error) => error.to_string(),
        };
        // Of its metadata only what names it, which the API server has checked.
        let text = |field: &str| whole.get("metadata")?.get(field)?.as_str().map(str::to_owned);
        let metadata = ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        };
        if metadata.name.is_none() {
            return Err(D::Error::custom(error));
        }
        Ok(Self(Err(Undecodable { metadata, error })))
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
        assert!(list.items[1].0.as_ref().unwrap_err().error.contains("IP address"));
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
}
