//! The types that all roles share: custom resources (one file per kind), names, conditions, and the value types that
//! strings are parsed into.
//!
//! This crate does no I/O, reads no clock and has no client, so that a pure plan function can depend on all of it.

pub mod access;
pub mod cloud_sync;
pub mod cluster_health;
pub mod condition;
pub mod containership;
pub mod names;
pub mod node_identity;
pub mod node_report;
pub mod node_upgrade;
pub mod plugin_inventory;
mod schema;
pub mod values;

pub use cloud_sync::{CloudSync, CloudSyncSpec, CloudSyncStatus, HeldDeletions, KindSync, RefusedObject};
pub use cluster_health::{ClusterHealth, ClusterHealthSpec, ClusterHealthStatus, HealthCounts};
pub use condition::{Condition, ConditionStatus};
pub use node_identity::{NodeIdentity, NodeIdentitySpec, NodeIdentityStatus, RecordedLabel};
pub use node_report::{HostFacts, NodeReport, NodeReportStatus, RefusedKey, Tampering, UserKeys};
pub use node_upgrade::{NodeUpgrade, NodeUpgradeSpec};
pub use plugin_inventory::{AcceptedRelease, AppliedKind, AppliedObject, PluginInventory, PluginInventorySpec};
pub use values::{
    ClusterName, InstanceGroupName, InvalidValue, LabelKey, LabelSource, LabelValue, Lifecycle, NodeName, NodeUid,
    ProviderId, SecretText, ServiceAccountName,
};

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::CustomResourceExt as _;

/// The role that writes or mirrors the objects of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The controller.
    Controller,
    /// The coordinator.
    Coordinator,
    /// The agent.
    Agent,
}

impl Role {
    /// All roles that have kinds.
    pub const ALL: [Self; 3] = [Self::Controller, Self::Coordinator, Self::Agent];

    /// The `CustomResourceDefinition`s that this role needs, in the order in which to apply them.
    ///
    /// `tidewaiter crds` prints them, and `cargo xtask generate` writes them to `deploy/crds`.
    #[must_use]
    pub fn crds(self) -> Vec<CustomResourceDefinition> {
        match self {
            Self::Controller => vec![node_identity::crd(), cluster_health::crd()],
            Self::Coordinator => {
                let mut crds = containership::crds();
                crds.push(CloudSync::crd());
                crds.push(PluginInventory::crd());
                crds.push(NodeUpgrade::crd());
                crds
            }
            Self::Agent => vec![node_report::crd()],
        }
    }
}

/// The definitions of all roles.
#[must_use]
pub fn crds() -> Vec<CustomResourceDefinition> {
    Role::ALL.into_iter().flat_map(Role::crds).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cerebral writes the status of its groups through the subresource. Whoever may release the brake cannot forge a
    /// `CloudSync`. The conditions of a Plugin name the generation of its spec. The status of a `ClusterUpgrade` says
    /// in words what its spec decides.
    #[test]
    fn these_kinds_alone_have_a_status_subresource() {
        let crds = crds();
        let with_status = crds.iter().filter(|crd| {
            let versions = &crd.spec.versions;
            versions.len() == 1 && versions[0].subresources.is_some()
        });
        let kinds: Vec<&str> = with_status.map(|crd| crd.spec.names.kind.as_str()).collect();
        assert_eq!(kinds, ["Plugin", "ClusterUpgrade", "AutoscalingGroup", "CloudSync"]);
    }
}
