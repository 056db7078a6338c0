//! The operator's settings for plugins.

use serde::{Deserialize, Serialize};
use tidewaiter_cloud::signed::TrustedKey;

use super::account::PluginAccount;
use super::approval::PluginApproval;
use super::by_plugin::ByPlugin;
use super::namespaces::PluginNamespaces;

/// The type of the plugins that are the cluster manager itself.
const CLUSTER_MANAGEMENT: &str = "cluster_management";

/// The plugins of the cloud that are applied. Those that are not are left as they are.
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

/// The treatment of an object of a plugin that somebody changed or deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PluginDrift {
    /// It is made what the manifests say.
    #[default]
    Correct,
    /// It is reported, and left so until the next version.
    Report,
}

/// The operator's settings for plugins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginSettings {
    /// The plugins that are applied.
    pub sync: PluginSync,
    /// The treatment of objects that somebody changed.
    pub drift: PluginDrift,
    /// The plugins that need a person's approval for each version.
    pub approval: PluginApproval,
    /// The kinds that plugins may not have: `ClusterRoleBinding.rbac.authorization.k8s.io`, `Secret`.
    pub deny: Vec<String>,
    /// The keys of which one must have signed the manifests. Without keys, none needs a signature.
    pub trust: Vec<TrustedKey>,
    /// In which namespaces plugins may have objects. Once it is set, a plugin without a row may have none.
    pub namespaces: ByPlugin<PluginNamespaces>,
    /// The identities by which the objects of plugins are read and written. Once it is set, a plugin without a row is
    /// not applied.
    pub accounts: ByPlugin<PluginAccount>,
}

impl PluginSync {
    /// Returns true if plugins of this type are applied.
    pub(super) fn includes(self, plugin_type: &str) -> bool {
        match self {
            Self::All => true,
            Self::ExceptClusterManagement => !plugin_type.eq_ignore_ascii_case(CLUSTER_MANAGEMENT),
            Self::None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_type_is_compared_without_regard_to_case_as_in_the_catalogue() {
        for (plugin_type, applied) in [
            ("cluster_management", false),
            ("Cluster_Management", false),
            ("CLUSTER_MANAGEMENT", false),
            ("metrics", true),
            ("cluster_management_too", true),
        ] {
            assert_eq!(
                PluginSync::ExceptClusterManagement.includes(plugin_type),
                applied,
                "{plugin_type}"
            );
            assert!(PluginSync::All.includes(plugin_type) && !PluginSync::None.includes(plugin_type));
        }
    }
}
