//! A service account as it is cached: what decides whether to write.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{LocalObjectReference, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use tidewaiter_api::names::{ATTACHED_ANNOTATION, CONTAINERSHIP_ACCOUNT, MANAGED_LABEL, MANAGED_VALUE};

use crate::meta;
use crate::mirror::is_id;

/// The longest text that is cached of one, in bytes: the names of 200 registries in both places. Anyone who may write a
/// service account makes it as long as the API server takes.
const TEXT: usize = 16 << 10;

/// A slim service account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = ServiceAccount)]
#[serde(from = "Received")]
pub(crate) struct Account {
    metadata: ObjectMeta,
    read: Read,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Read {
    managed: bool,
    attached: String,
    entries: Vec<String>,
    /// True if these are longer than [`TEXT`], and not cached.
    too_long: bool,
}

impl Account {
    /// Returns true if it is managed by Tidewaiter.
    pub(super) fn is_managed(&self) -> bool {
        self.read.managed
    }

    /// Returns true if its pull secrets are not cached, because they are too long: it is left alone.
    pub(super) fn is_too_long(&self) -> bool {
        self.read.too_long
    }

    /// Returns true if it has one of these names.
    pub(super) fn is_one_of(&self, names: &BTreeSet<String>) -> bool {
        self.metadata.name.as_ref().is_some_and(|name| names.contains(name))
    }

    /// Returns true if it is the account that Tidewaiter makes, which goes as a whole.
    pub(crate) fn is_the_managed_one(&self) -> bool {
        self.is_managed() && self.metadata.name.as_deref() == Some(CONTAINERSHIP_ACCOUNT)
    }

    /// Returns true if Tidewaiter attached a pull secret to it.
    pub(super) fn has_entries_of_ours(&self) -> bool {
        !self.read.attached.is_empty()
    }

    /// The names in `imagePullSecrets`, in order.
    pub(super) fn entries(&self) -> &[String] {
        &self.read.entries
    }

    /// The pull secrets that Tidewaiter recorded as its own.
    pub(super) fn recorded(&self) -> BTreeSet<String> {
        let names = self.read.attached.split(',').filter(|name| !name.is_empty());
        names.map(str::to_owned).collect()
    }

    /// The pull secrets that Tidewaiter attached. The Go coordinator recorded none: in its account, they are the ids of
    /// registries.
    pub(super) fn attached(&self) -> BTreeSet<String> {
        if self.has_entries_of_ours() || !self.is_the_managed_one() {
            return self.recorded();
        }
        let ids = self.read.entries.iter().filter(|name| is_id(name));
        ids.cloned().collect()
    }
}

/// A service account as the API server sends it, or as the cache packed it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Received {
    #[serde(deserialize_with = "tidewaiter_kit::slim::annotated")]
    metadata: ObjectMeta,
    #[serde(default)]
    image_pull_secrets: Option<Vec<LocalObjectReference>>,
    /// Not a field of a service account.
    read: Option<Read>,
}

impl From<Received> for Account {
    fn from(received: Received) -> Self {
        let meta = received.metadata;
        let mut read = received.read.unwrap_or_else(|| Read {
            too_long: false,
            managed: meta
                .labels
                .as_ref()
                .is_some_and(|labels| labels.get(MANAGED_LABEL).is_some_and(|value| value == MANAGED_VALUE)),
            attached: meta
                .annotations
                .as_ref()
                .and_then(|annotations| annotations.get(ATTACHED_ANNOTATION).cloned())
                .unwrap_or_default(),
            entries: received
                .image_pull_secrets
                .into_iter()
                .flatten()
                .map(|reference| reference.name)
                .collect(),
        });
        if read.attached.len()
            + read
                .entries
                .iter()
                .map(|name| name.len().max(size_of::<String>()))
                .sum::<usize>()
            > TEXT
        {
            read.too_long = true;
            (read.attached, read.entries) = (String::new(), Vec::new());
        }
        Self {
            metadata: meta::identity(meta),
            read,
        }
    }
}
