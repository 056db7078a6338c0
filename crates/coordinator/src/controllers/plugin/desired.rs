//! The objects that a version of a plugin desires: fetched from the cloud, trusted, read, stored, rendered for
//! approval.
//!
//! An [`Object`] is as the manifests have it, under its [`ObjectId`]. A version that is [`Refused`] is not applied at
//! all.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::sync::Arc;

use kube::core::GroupVersionKind;
use lz4_flex::block::{compress_prepend_size, decompress_size_prepended};
use serde::de::{DeserializeOwned, Error as _};
use serde_json::value::RawValue;
use serde_json::{Error, Map, Value};
use tidewaiter_api::AcceptedRelease;
use tidewaiter_api::containership::PluginSpec;
use tidewaiter_api::names::PLUGIN_LABEL;
use tidewaiter_api::values::printable;

use super::report::Problem;
use super::settings::Identity;

mod depends;
mod diff;
mod fetch;
mod proposal;
mod record;
mod release;
mod render;
mod sent;
mod store;

pub(super) use depends::Dependencies;
pub use diff::{DIFF_KEY, Difference, ObjectChange, Operation, PluginDiff};
pub(super) use fetch::{Manifests, REFRESH, annotation};
pub(super) use record::Record;
pub(super) use release::manifest::as_stored;
pub(super) use release::{Release, SERVERS_OWN, outlast};
pub(super) use render::{Proposals, is_applied};
#[cfg(test)]
pub(super) use sent::Sent;
pub(super) use sent::Untrusted;
use store::spec_when_accepted;
pub(super) use store::{Saved, Store, is_too_large};

/// A version to apply.
pub(crate) struct Goal {
    pub(crate) identity: Identity,
    /// The plugin with this version.
    pub(crate) spec: PluginSpec,
    pub(crate) release: Arc<Release>,
    /// True if it is a stored one.
    pub(crate) stored: bool,
}

impl Goal {
    /// The stored version of the plugin `today`.
    pub(crate) fn stored(today: &PluginSpec, entry: &AcceptedRelease, release: Arc<Release>) -> Self {
        let spec = spec_when_accepted(today, entry);
        Self {
            identity: Identity::of(&spec),
            spec,
            release,
            stored: true,
        }
    }

    pub(crate) fn refused(&self, record: &Record, refused: &Refused) -> Problem {
        match record.accepted(&self.release.revision).filter(|_| self.stored) {
            Some(entry) => Problem::unusable(&self.spec.id, entry, &refused.to_string()),
            None => Problem::refused(&self.spec.id, &self.spec.version, refused),
        }
    }
}

/// Names an object, whatever the version of its group. The name is compared first: the other fields of most objects of
/// a plugin are equal.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ObjectId {
    pub(crate) name: String,
    pub(crate) kind: String,
    /// Empty for a cluster-scoped object.
    pub(crate) namespace: String,
    pub(crate) group: String,
}

/// An object as the manifests have it, with the label of its plugin.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Object {
    /// With the namespace of the manifest, if it has one.
    pub(crate) id: ObjectId,
    /// The version of the group.
    pub(crate) version: String,
    pub(crate) manifest: Manifest,
    /// The digest of the manifest as it was sent: the revision of a version does not depend on what Tidewaiter makes of
    /// it.
    pub(crate) sent: String,
    /// The digest of the manifest: with another one, the object is applied again.
    pub(crate) digest: String,
    /// True if it may be deleted and created again when a field cannot be changed.
    pub(crate) replaces: bool,
    /// True for a Job with `ttlSecondsAfterFinished`: it runs once for each version, and stays until the next one.
    pub(crate) expires: bool,
}

/// The JSON of an object, compressed. A pass that writes nothing does not parse it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Manifest(Arc<[u8]>);

impl Manifest {
    /// `json` must be an object.
    pub(crate) fn pack(json: &str) -> Self {
        Self(compress_prepend_size(json.as_bytes()).into())
    }

    /// The memory that it takes, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// The manifest as a value.
    pub(crate) fn value(&self) -> Result<Map<String, Value>, Error> {
        self.read()
    }

    /// The fields of the manifest, each as text.
    pub(crate) fn fields(&self) -> Result<BTreeMap<String, Box<RawValue>>, Error> {
        self.read()
    }

    fn read<T: DeserializeOwned>(&self) -> Result<T, Error> {
        let text = decompress_size_prepended(&self.0).map_err(Error::custom)?;
        serde_json::from_slice(&text)
    }
}

impl Object {
    /// The id of its plugin.
    pub(crate) fn plugin(&self) -> String {
        let manifest = self.manifest.value().unwrap_or_default();
        let label = manifest
            .get("metadata")
            .map(|metadata| &metadata["labels"][PLUGIN_LABEL]);
        label.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}

impl ObjectId {
    /// Returns true if other objects of a plugin may need it first, and others than the plugin use it.
    pub(crate) fn is_prerequisite(&self) -> bool {
        matches!(
            (self.group.as_str(), self.kind.as_str()),
            ("", "Namespace") | ("apiextensions.k8s.io", "CustomResourceDefinition")
        )
    }

    pub(crate) fn is_namespace(&self) -> bool {
        (self.group.as_str(), self.kind.as_str()) == ("", "Namespace")
    }

    pub(crate) fn is_job(&self) -> bool {
        (self.group.as_str(), self.kind.as_str()) == ("batch", "Job")
    }

    pub(crate) fn is_secret(&self) -> bool {
        (self.group.as_str(), self.kind.as_str()) == ("", "Secret")
    }

    /// The kind, as `pluginDeny` names it: `Deployment.apps`, `Secret`.
    pub(crate) fn kind_name(&self) -> String {
        if self.group.is_empty() {
            self.kind.clone()
        } else {
            format!("{}.{}", self.kind, self.group)
        }
    }

    /// The object as an argument of kubectl: `deployment.apps prometheus -n monitoring`.
    pub(crate) fn as_argument(&self) -> String {
        let kind = self.kind_name().to_ascii_lowercase();
        if self.namespace.is_empty() {
            format!("{kind} {}", self.name)
        } else {
            format!("{kind} {} -n {}", self.name, self.namespace)
        }
    }

    /// The object in its place, as kubectl has it: one of a namespaced kind without a namespace is in `default`, and
    /// the namespace of one of a cluster-scoped kind has no meaning.
    pub(crate) fn in_scope(&self, namespaced: bool) -> Self {
        let mut id = self.clone();
        match id.namespace.as_str() {
            "" if namespaced => "default".clone_into(&mut id.namespace),
            _ if namespaced => {}
            _ => id.namespace.clear(),
        }
        id
    }

    /// Both places in which it may be, for use while it is unknown whether its kind is namespaced.
    pub(crate) fn places(&self) -> [Self; 2] {
        [true, false].map(|namespaced| self.in_scope(namespaced))
    }

    /// The kind in a version of its group.
    pub(crate) fn in_version(&self, version: &str) -> GroupVersionKind {
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

/// The remedy for a value that is no text.
pub(crate) const QUOTES: &str = "numbers and true/false that are meant as texts need quotes in YAML";

/// The reason why a version is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{at}: {why}")]
pub(crate) struct Refused {
    /// The object, or its place in the manifests.
    pub(crate) at: String,
    pub(crate) why: String,
}

pub(crate) fn refused(at: impl Into<String>, why: impl Into<String>) -> Refused {
    Refused {
        at: at.into(),
        why: why.into(),
    }
}
