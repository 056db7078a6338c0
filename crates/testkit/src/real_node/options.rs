//! The options of a node.

use std::collections::BTreeMap;

use crate::assets;

/// The kubelets that `hack/node-assets` builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletVersion {
    /// The control plane's.
    Current,
    /// That of the release before.
    Previous,
}

impl KubeletVersion {
    /// As the Node reports it, `v1.36.3`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => assets::kubernetes_version(),
            Self::Previous => assets::previous_kubelet_version(),
        }
    }
}

/// The options of a node; without a choice it has no label of its own, no taint and no providerID.
#[derive(Clone, Debug)]
#[must_use]
pub struct NodeOptions {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<(String, String)>,
    pub(super) provider_id: Option<String>,
    pub(super) loopback: bool,
    /// In bytes.
    pub(super) disk: u64,
}

impl NodeOptions {
    /// A node of this name, with a disk of 4 GiB.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            labels: BTreeMap::new(),
            taints: Vec::new(),
            provider_id: None,
            loopback: false,
            disk: 4 << 30,
        }
    }

    /// A label, which an administrator gives the Node once kubelet has registered it: any label, also those that no
    /// kubelet may set.
    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.labels.insert(key.to_owned(), value.to_owned());
        self
    }

    /// A taint without value, with which kubelet registers the Node.
    pub fn taint(mut self, key: &str, effect: &str) -> Self {
        self.taints.push((key.to_owned(), effect.to_owned()));
        self
    }

    /// Its `spec.providerID`.
    pub fn provider_id(mut self, id: impl Into<String>) -> Self {
        self.provider_id = Some(id.into());
        self
    }

    /// The API server also answers at 127.0.0.1:443 of the node, as on the control plane nodes of kOps.
    pub fn api_server_on_loopback(mut self) -> Self {
        self.loopback = true;
        self
    }

    /// The size of its disk in bytes. Only what is used takes space.
    pub fn disk(mut self, bytes: u64) -> Self {
        self.disk = bytes;
        self
    }
}
