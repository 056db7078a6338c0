//! The name of an object, as caches, queues and controllers pass it around.

use std::borrow::Borrow;
use std::fmt::{self, Debug, Display};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

/// Names one object of a kind: `name`, or `namespace/name`, as client-go writes it. Clones share the text: thousands of
/// objects are named in several places at once.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Arc<str>);

impl Key {
    /// The key of a cluster-scoped object of this name.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The key of the object of this name in `namespace`.
    #[must_use]
    pub fn namespaced(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The key of `object`. An object without a name has an empty key.
    #[must_use]
    pub fn of(object: &impl Resource) -> Self {
        Self::of_meta(object.meta())
    }

    /// The key of the object with this metadata.
    #[must_use]
    pub fn of_meta(meta: &ObjectMeta) -> Self {
        let name = meta.name.as_deref().unwrap_or_default();
        match meta.namespace.as_deref() {
            Some(namespace) => Self::namespaced(namespace, name),
            None => Self::new(name),
        }
    }

    /// The text, to be shared.
    #[must_use]
    pub fn text(&self) -> &Arc<str> {
        &self.0
    }

    /// The object's namespace; None for a cluster-scoped object.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        self.0.rsplit_once('/').map(|(namespace, _)| namespace)
    }

    /// The object's name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or(&*self.0, |(_, name)| name)
    }
}

impl Borrow<str> for Key {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Debug::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::{Node, Pod};
    use serde_json::json;

    use super::*;

    #[test]
    fn is_written_as_client_go_does() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "a"}})).unwrap();
        let pod: Pod = serde_json::from_value(json!({"metadata": {"name": "b", "namespace": "kube-system"}})).unwrap();
        for (key, text, name) in [(Key::of(&node), "a", "a"), (Key::of(&pod), "kube-system/b", "b")] {
            assert_eq!((key.to_string().as_str(), key.name()), (text, name));
        }
        assert_eq!(Key::of(&node), Key::new("a"));
        assert_eq!(Key::of(&pod), Key::namespaced("kube-system", "b"));
        assert_eq!(
            (Key::of(&node).namespace(), Key::of(&pod).namespace()),
            (None, Some("kube-system"))
        );
    }
}
