//! The parts that the controller reads of a Registry, and of the Secrets in `containership-core`.
//!
//! `Debug` shows no content.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::Deserialize;
use serde_json::Value;
use tidewaiter_api::containership::Registry;
use tidewaiter_api::names::{CONTROLLER_LABEL, REGISTRY_SECRET_LABEL};

/// A Registry whose spec may have any form: that it exists is enough to keep its pull secrets.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Registry)]
pub(super) struct StoredRegistry {
    #[serde(deserialize_with = "tidewaiter_kit::slim::for_writer")]
    metadata: ObjectMeta,
    /// Read in the mode `inline` only, and there only if it is not known how the cloud lists the registry.
    #[serde(default)]
    pub(super) spec: Hidden<Value>,
}

/// A Secret of `containership-core`.
#[derive(Clone, Debug, Deserialize, Resource)]
#[resource(inherit = Secret)]
pub(super) struct StoredSecret {
    #[serde(deserialize_with = "tidewaiter_kit::slim::for_writer")]
    metadata: ObjectMeta,
    #[serde(default, rename = "type")]
    pub(super) type_: String,
    #[serde(default)]
    pub(super) data: Hidden<Option<SecretData>>,
}

pub(super) type SecretData = BTreeMap<String, ByteString>;

impl StoredSecret {
    /// The registry whose credentials it holds.
    pub(super) fn credentials_of(&self) -> Option<&str> {
        self.label(REGISTRY_SECRET_LABEL)
    }

    /// The registry whose pull secret it is.
    pub(super) fn pull_secret_of(&self) -> Option<&str> {
        let id = self.label(CONTROLLER_LABEL)?;
        (self.metadata.name.as_deref() == Some(id)).then_some(id)
    }

    /// The bytes under this key.
    pub(super) fn bytes(&self, key: &str) -> Option<&[u8]> {
        let data = self.data.0.as_ref()?;
        data.get(key).map(|bytes| bytes.0.as_slice())
    }

    pub(super) fn annotation(&self, key: &str) -> Option<&str> {
        let annotations = self.metadata.annotations.as_ref()?;
        annotations.get(key).map(String::as_str)
    }

    fn label(&self, key: &str) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        labels.get(key).map(String::as_str)
    }
}

/// A value that `Debug` does not show.
#[derive(Clone, Default, Deserialize)]
#[serde(transparent)]
pub(super) struct Hidden<T>(pub(super) T);

impl<T> fmt::Debug for Hidden<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(not shown)")
    }
}
