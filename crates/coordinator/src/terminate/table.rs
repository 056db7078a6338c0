//! The table of removals: a line for each kind, in this order.
//!
//! First what is made from the custom resources, then the custom resources, because each says what belongs to it. An
//! entry goes before the Secret that it names.

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, Secret, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, RoleBinding};
use kube::core::ObjectMeta;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tidewaiter_api::containership::{
    AuthorizationRole, AuthorizationRoleBinding, AutoscalingGroup, AutoscalingPolicy, ClusterLabel, ClusterUpgrade,
    NodePoolLabel, Plugin, Registry, User,
};
use tidewaiter_api::names::{
    CLOUD_LIST_LABEL, CONTAINERSHIP_ACCOUNT, CONTAINERSHIP_NAMESPACE, MANAGED_LABEL, MANAGED_VALUE, PLUGIN_STORE_LABEL,
};
use tidewaiter_api::{CloudSync, NodeUpgrade};
use tidewaiter_kit::Cacheable;
use tidewaiter_kit::slim::OUR_MANAGERS;

use super::sweep::{Count, SweepError, Terminator};

/// The mirror's controllers, one for each kind, write as `tidewaiter/sync-…`.
const MIRROR: &str = "tidewaiter/sync-";

/// The name of the row of `CloudSync`.
pub(super) const CLOUD_SYNCS: &str = "cloudsyncs";

/// The rows.
pub(super) fn table() -> [Row; 22] {
    [
        Row::plugins("plugininventories"),
        Row::of::<Secret>("pluginsecrets", Ours::Labelled(PLUGIN_STORE_LABEL)),
        Row::of::<Secret>("cloudlists", Ours::Labelled(CLOUD_LIST_LABEL)),
        Row::entries("imagepullsecrets"),
        Row::of::<Secret>("secrets", Ours::Managed),
        Row::of::<ServiceAccount>("serviceaccounts", Ours::ManagedNamed(CONTAINERSHIP_ACCOUNT)),
        Row::of::<Node>("nodelabels", Ours::Prefixes),
        Row::of::<ClusterRoleBinding>("clusterrolebindings", Ours::Managed),
        Row::of::<RoleBinding>("rolebindings", Ours::Managed),
        Row::of::<ClusterRole>("clusterroles", Ours::Managed),
        Row::in_core::<AuthorizationRoleBinding>("authorizationrolebindings", Ours::AppliedBy(MIRROR)),
        Row::in_core::<AuthorizationRole>("authorizationroles", Ours::AppliedBy(MIRROR)),
        Row::of::<AutoscalingGroup>("autoscalinggroups", Ours::AppliedBy(MIRROR)),
        Row::of::<AutoscalingPolicy>("autoscalingpolicies", Ours::AppliedBy(MIRROR)),
        // Before what they are derived from, which may stay.
        Row::in_core::<NodeUpgrade>("nodeupgrades", Ours::AppliedBy(OUR_MANAGERS)),
        // One that a person created stays: the mirror did not write it.
        Row::in_core::<ClusterUpgrade>("clusterupgrades", Ours::AppliedBy(MIRROR)),
        Row::in_core::<ClusterLabel>("clusterlabels", Ours::AppliedBy(MIRROR)),
        Row::in_core::<NodePoolLabel>("nodepoollabels", Ours::AppliedBy(MIRROR)),
        Row::in_core::<Plugin>("plugins", Ours::AppliedBy(MIRROR)),
        Row::in_core::<Registry>("registries", Ours::AppliedBy(MIRROR)),
        Row::in_core::<User>("users", Ours::AppliedBy(MIRROR)),
        Row::of::<CloudSync>(CLOUD_SYNCS, Ours::AppliedBy(OUR_MANAGERS)),
    ]
}

/// A kind whose objects are removed.
pub(super) struct Row {
    /// Its name in the progress: usually the plural of the kind.
    pub(super) name: &'static str,
    pub(super) ours: Ours,
    sweep: for<'a> fn(&'a Terminator, &'a Row) -> BoxFuture<'a, Result<Count, SweepError>>,
}

/// The objects of a kind that are ours.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ours {
    /// The objects with the label of what the coordinator makes.
    Managed,
    /// The objects with this label.
    Labelled(&'static str),
    /// The objects with the label and this name.
    ManagedNamed(&'static str),
    /// The objects that a field manager of ours applied, whose name begins so. The custom resources have no label.
    AppliedBy(&'static str),
    /// Inventories of plugins, with what they name.
    Inventories,
    /// Only entries in `imagePullSecrets`, which an annotation names.
    Entries,
    /// Only the labels under the prefixes of the label controllers.
    Prefixes,
}

impl Row {
    /// The objects of the whole cluster.
    fn of<K: Cacheable + DeserializeOwned>(name: &'static str, ours: Ours) -> Self {
        Self {
            name,
            ours,
            sweep: |terminator, row| terminator.remove(row, Api::<K>::all(terminator.client())).boxed(),
        }
    }

    /// The objects of the namespace of the custom resources.
    fn in_core<K>(name: &'static str, ours: Ours) -> Self
    where
        K: Cacheable + DeserializeOwned + Resource<Scope = NamespaceResourceScope>,
    {
        Self {
            name,
            ours,
            sweep: |terminator, row| {
                let api = Api::<K>::namespaced(terminator.client(), CONTAINERSHIP_NAMESPACE);
                terminator.remove(row, api).boxed()
            },
        }
    }

    /// The plugins' objects, and then the inventory of them.
    fn plugins(name: &'static str) -> Self {
        Self {
            name,
            ours: Ours::Inventories,
            sweep: |terminator, row| terminator.remove_plugins(row).boxed(),
        }
    }

    /// The entries of ours in the service accounts of others.
    fn entries(name: &'static str) -> Self {
        Self {
            name,
            ours: Ours::Entries,
            sweep: |terminator, row| terminator.detach(row).boxed(),
        }
    }

    /// Removes what there is of it.
    pub(super) fn sweep<'a>(&'a self, terminator: &'a Terminator) -> BoxFuture<'a, Result<Count, SweepError>> {
        (self.sweep)(terminator, self)
    }
}

impl Ours {
    /// The selectors of the API server.
    pub(super) fn selectors(self) -> (Option<String>, Option<String>) {
        let managed = Some(format!("{MANAGED_LABEL}={MANAGED_VALUE}"));
        match self {
            Self::Managed => (managed, None),
            Self::Labelled(label) => (Some(label.to_owned()), None),
            Self::ManagedNamed(name) => (managed, Some(format!("metadata.name={name}"))),
            Self::AppliedBy(_) | Self::Inventories | Self::Entries | Self::Prefixes => (None, None),
        }
    }

    /// Returns true if an object that was selected is ours.
    pub(super) fn owns(self, object: &ObjectMeta) -> bool {
        let Self::AppliedBy(prefix) = self else { return true };
        let mut managers = object
            .managed_fields
            .iter()
            .flatten()
            .filter_map(|entry| entry.manager.as_deref());
        managers.any(|manager| manager.starts_with(prefix))
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_api::Role;

    use super::*;

    #[test]
    fn every_custom_resource_has_a_row() {
        let rows = table().map(|row| row.name);
        for crd in Role::Coordinator.crds() {
            let plural = crd.spec.names.plural;
            assert!(rows.contains(&&*plural), "{plural} would not be removed");
        }
    }
}
