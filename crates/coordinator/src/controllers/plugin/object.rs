//! How objects of plugins are named.

use std::fmt::{self, Display};

use kube::core::GroupVersionKind;
use serde_json::{Map, Value};
use tidewaiter_api::names::PLUGIN_LABEL;

/// Names an object, whatever the version of its group. The name is compared first: the other fields of most objects of a plugin are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ObjectId {
    pub(super) name: String,
    pub(super) kind: String,
    /// Empty for a cluster-scoped object.
    pub(super) namespace: String,
    pub(super) group: String,
}

/// An object as the manifests have it, with the label of its plugin.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    /// With the namespace of the manifest, if it has one.
    pub(super) id: ObjectId,
    /// The version of the group.
    pub(super) version: String,
    pub(super) body: Map<String, Value>,
    /// The digest of the body.
    pub(super) digest: String,
    /// Whether it may be deleted and created again when a field cannot be changed.
    pub(super) replaces: bool,
}

impl Object {
    /// The id of its plugin.
    pub(super) fn plugin(&self) -> &str {
        let label = self
            .body
            .get("metadata")
            .map(|metadata| &metadata["labels"][PLUGIN_LABEL]);
        label.and_then(Value::as_str).unwrap_or_default()
    }
}

impl ObjectId {
    /// Whether other objects of a plugin may need it first, and others than the plugin use it.
    pub(super) fn is_prerequisite(&self) -> bool {
        matches!(
            (self.group.as_str(), self.kind.as_str()),
            ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
        )
    }

    pub(super) fn is_namespace(&self) -> bool {
        (self.group.as_str(), self.kind.as_str()) == ("", "Namespace")
    }

    pub(super) fn is_secret(&self) -> bool {
        (self.group.as_str(), self.kind.as_str()) == ("", "Secret")
    }

    /// The kind, as `pluginDeny` names it: `Deployment.apps`, `Secret`.
    pub(super) fn kind_name(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// The object as an argument of kubectl: `deployment.apps prometheus -n monitoring`.
    pub(super) fn as_argument(&self) -> String {
        let kind = self.kind_name().to_ascii_lowercase();
        if self.namespace.is_empty() {
            format!("{kind} {}", self.name)
        } else {
            format!("{kind} {} -n {}", self.name, self.namespace)
        }
    }

    /// The object in its place: an object of a namespaced kind without a namespace is in `default`, as kubectl has it.
    pub(super) fn in_scope(&self, namespaced: bool) -> Self {
        let mut id = self.clone();
        if namespaced && id.namespace.is_empty() {
            "default".clone_into(&mut id.namespace);
        }
        id
    }

    /// The kind in a version of its group.
    pub(super) fn in_version(&self, version: &str) -> GroupVersionKind {
        GroupVersionKind::gvk(&self.group, version, &self.kind)
    }
}

impl Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.kind_name())?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", self.namespace)?;
        }
        f.write_str(&self.name)
    }
}
