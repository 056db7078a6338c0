//! The names of plugins' objects.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;

use kube::core::GroupVersionKind;
use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
use serde::de::DeserializeOwned;
use serde::de::Error as _;
use serde_json::value::RawValue;
use serde_json::{Error, Map, Value};
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_api::values::printable;

/// Names an object, whatever the version of its group. The name is compared first: the other fields of most objects of
/// a plugin are equal.
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
    pub(super) manifest: Manifest,
    /// The digest of the manifest as it was sent: the revision of a version does not depend on what Tidewaiter makes of
    /// it.
    pub(super) sent: String,
    /// The digest of the manifest: with another one, the object is applied again.
    pub(super) digest: String,
    /// True if it may be deleted and created again when a field cannot be changed.
    pub(super) replaces: bool,
    /// True for a Job with `ttlSecondsAfterFinished`: it runs once for each version, and stays until the next one.
    pub(super) expires: bool,
}

/// The JSON of an object, compressed. A pass that writes nothing does not parse it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Manifest(Arc<[u8]>);

impl Manifest {
    /// `json` must be an object.
    pub(super) fn pack(json: &str) -> Self {
        Self(compress_prepend_size(json.as_bytes()).into())
    }

    /// The memory that it takes, in bytes.
    pub(super) fn size(&self) -> usize {
        self.0.len()
    }

    /// The manifest as a value.
    pub(super) fn value(&self) -> Result<Map<String, Value>, Error> {
        self.read()
    }

    /// The fields of the manifest, each as text.
    pub(super) fn fields(&self) -> Result<BTreeMap<String, Box<RawValue>>, Error> {
        self.read()
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let text = decompress_size_prepended(&self.0).map_err(Error::custom)?;
        serde_json::from_slice(&text)
    }
}

impl Object {
    /// The id of its plugin.
    pub(super) fn plugin(&self) -> String {
        let manifest = self.manifest.value().unwrap_or_default();
        let label = manifest
            .get("metadata")
            .map(|metadata| &metadata["labels"][PLUGIN_LABEL]);
        label.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

impl ObjectId {
    /// Returns true if other objects of a plugin may need it first, and others than the plugin use it.
    pub(super) fn is_prerequisite(&self) -> bool {
        matches!(
            (self.group.as_str(), self.kind.as_str()),
            ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
        )
    }

    pub(super) fn is_namespace(&self) -> bool {
        (self.group.as_str(), self.kind.as_str()) == ("", "Namespace")
    }

    pub(super) fn is_job(&self) -> bool {
        (self.group.as_str(), self.kind.as_str()) == ("batch", "Job")
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

    /// The object in its place, as kubectl has it: one of a namespaced kind without a namespace is in `default`, and
    /// the namespace of one of a cluster-scoped kind has no meaning.
    pub(super) fn in_scope(&self, namespaced: bool) -> Self {
        let mut id = self.clone();
        match id.namespace.as_str() {
            "" if namespaced => "default".clone_into(&mut id.namespace),
            _ if namespaced => {}
            _ => id.namespace.clear(),
        }
        id
    }

    /// Both places in which it may be, for use while it is unknown whether its kind is namespaced.
    pub(super) fn places(&self) -> [Self; 2] {
        [true, false].map(|namespaced| self.in_scope(namespaced))
    }

    /// The kind in a version of its group.
    pub(super) fn in_version(&self, version: &str) -> GroupVersionKind {
        GroupVersionKind::gvk(&self.group, version, &self.kind)
    }
}

impl Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", printable(&self.kind_name()))?;
        if !self.namespace.is_empty() {
            write!(f, "{}/", printable(&self.namespace))?;
        }
        f.write_str(&printable(&self.name))
    }
}
