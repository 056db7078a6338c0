//! What the operator decides about plugins.

use serde::{Deserialize, Serialize};
use tidewaiter_cloud::signed::TrustedKey;

use super::account::PluginAccount;
use super::approval::PluginApproval;
use super::by_plugin::ByPlugin;
use super::namespaces::PluginNamespaces;

/// The type of the plugins that are the cluster manager itself.
const CLUSTER_MANAGEMENT: &str = "cluster_management";

/// Which plugins of the cloud are applied. Those that are not are left as they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PluginSync {
    /// All.
    #[default]
    All,
    /// All but those of the type `cluster_management`.
    ExceptClusterManagement,
    /// None.
    None,
}

/// What becomes of an object of a plugin that somebody changed or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PluginDrift {
    /// It is made what the manifests say.
    #[default]
    Correct,
    /// It is reported, and left so until the next version.
    Report,
}

/// What the operator decides about plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSettings {
    /// Which plugins are applied.
    pub sync: PluginSync,
    /// What becomes of objects that somebody changed.
    pub drift: PluginDrift,
    /// Which plugins need a person's approval for each version.
    pub approval: PluginApproval,
    /// The kinds that plugins may not have: `ClusterRoleBinding.rbac.authorization.k8s.io`, `Secret`.
    pub deny: Vec<String>,
    /// The keys of which one must have signed the manifests. Without keys, none needs a signature.
    pub trust: Vec<TrustedKey>,
    /// In which namespaces plugins may have objects. Once it is set, a plugin without a row may have none.
    pub namespaces: ByPlugin<PluginNamespaces>,
    /// As whom the objects of plugins are read and written. Once it is set, a plugin without a row is not applied.
    pub accounts: ByPlugin<PluginAccount>,
}

impl PluginSync {
    /// Whether plugins of this type are applied.
    pub(super) fn includes(self, plugin_type: &str) -> bool {
        match self {
            Self::All => true,
            Self::ExceptClusterManagement => plugin_type != CLUSTER_MANAGEMENT,
            Self::None => false,
        }
    }
}
