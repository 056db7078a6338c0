//! Upgrades of the cluster. The upgrade controller writes their progress.
//!
//! The mirror writes the fields of `spec.policy` that the cloud sets, and undoes edits of them. Those that it does not
//! set are the cluster's: anyone who may change the `ClusterUpgrade` can pause or abort it there, also while the cloud
//! is away.

use kube::ResourceExt as _;
use tidewaiter_api::containership::{
    ClusterUpgrade, ClusterUpgradeSpec, NodeSelector, SelectorOperator, UpgradeStatus, UpgradeType,
};
use tidewaiter_api::names::{MANAGED_LABEL, MANAGED_VALUE, UPGRADE_FINALIZER};
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models::{self, InvalidItem, Kind};

use crate::controllers;
use crate::mirror::kind::{CacheOf, Listed, MirroredKind, in_core, named};
use crate::mirror::shown_upgrades::ShownUpgrades;

/// The upgrades of the cluster that the cloud ordered.
pub(crate) struct Upgrades {
    /// The cloud's view of their progress.
    pub(crate) shown: ShownUpgrades,
    /// The setting of node upgrades.
    pub(crate) setting: controllers::Upgrades,
}

/// Returns true if the mirror created it. What a person or another program created is left alone, also if it has an id
/// and the label: people copy upgrades to repeat them.
pub(crate) fn is_of_cloud(upgrade: &ClusterUpgrade) -> bool {
    let manager = format!("tidewaiter/{}", Upgrades::CONTROLLER);
    let fields = upgrade.managed_fields();
    fields.iter().any(|entry| entry.manager.as_ref() == Some(&manager))
}

impl MirroredKind for Upgrades {
    const NAME: &'static str = "upgrades";
    const CONTROLLER: &'static str = "sync-upgrades";
    const CHANGED: &'static [Kind] = &[Kind::Upgrade];
    const CACHE: CacheOf<ClusterUpgrade> = in_core;
    const LISTED: Listed = Listed::At(Cluster::upgrades);
    const FINALIZER: Option<&'static str> = Some(UPGRADE_FINALIZER);
    /// Only the cloud says which upgrades are over, and must not be created again.
    const STORED: bool = false;
    type Object = models::Upgrade;
    type Resource = ClusterUpgrade;

    fn sees(&self, objects: &[Result<models::Upgrade, InvalidItem>]) {
        let upgrades = objects.iter().flatten();
        self.shown
            .set(upgrades.map(|upgrade| (upgrade.id, upgrade.status.clone())).collect());
    }

    fn called(&self, upgrade: &ClusterUpgrade) -> String {
        format!("to {}", upgrade.spec.target_version)
    }

    fn resource(&self, upgrade: models::Upgrade) -> Option<ClusterUpgrade> {
        let spec = upgrade.spec;
        let mut metadata = named(&upgrade.id);
        metadata.labels = Some([(MANAGED_LABEL.to_owned(), MANAGED_VALUE.to_owned())].into());
        Some(ClusterUpgrade {
            metadata,
            spec: ClusterUpgradeSpec {
                id: upgrade.id.to_string(),
                type_: match spec.upgrade_type {
                    models::UpgradeType::Kubernetes => UpgradeType::Kubernetes,
                },
                added_at: upgrade.added_at.to_string(),
                description: spec.description.to_string(),
                target_version: spec.target_version.to_string(),
                label_selector: spec.label_selector.into_iter().map(requirement).collect(),
                node_timeout_seconds: spec.node_timeout_seconds.into(),
                policy: spec.policy,
                status: None,
            },
            status: None,
        })
    }

    /// One that is over would begin again, where it was deleted in the cluster.
    fn creates(&self, upgrade: &ClusterUpgrade) -> bool {
        let id = upgrade.spec.id.parse();
        !id.is_ok_and(|id| self.shown.is_over(id))
    }

    /// The replica that enabled upgrades began it. Nodes stay cordoned, and later upgrades wait for it.
    fn idle(&self, upgrade: &ClusterUpgrade) -> Option<String> {
        let progress = upgrade.spec.status.as_ref()?;
        let is_idle =
            self.setting == controllers::Upgrades::Disabled && progress.cluster_status == UpgradeStatus::InProgress;
        is_idle.then(|| {
            format!(
                "the upgrade {} is in progress, and upgrades are disabled: set upgrades to enabled, so that it goes on or can be aborted",
                upgrade.name_any()
            )
        })
    }

    fn ours(&self, upgrade: &ClusterUpgrade) -> bool {
        is_of_cloud(upgrade) || self.adopts(upgrade)
    }
}

impl Upgrades {
    /// Returns true if it is an upgrade that the cloud lists and that the cloud put into the cluster itself, as it did
    /// beside the Go coordinator: under its id, with the label. A copy of a person has another name. One that the cloud
    /// does not list is nobody's to delete.
    fn adopts(&self, upgrade: &ClusterUpgrade) -> bool {
        let (name, labels) = (upgrade.name_any(), upgrade.labels());
        labels.get(MANAGED_LABEL).is_some_and(|value| value == MANAGED_VALUE)
            && upgrade.spec.id == name
            && name.parse().is_ok_and(|id| self.shown.lists(id))
    }
}

fn requirement(selector: models::NodeSelector) -> NodeSelector {
    NodeSelector {
        label: selector.label,
        operator: match selector.operator {
            models::SelectorOperator::In => SelectorOperator::In,
            models::SelectorOperator::NotIn => SelectorOperator::NotIn,
            models::SelectorOperator::Equals => SelectorOperator::Equals,
            models::SelectorOperator::DoubleEquals => SelectorOperator::DoubleEquals,
            models::SelectorOperator::NotEquals => SelectorOperator::NotEquals,
            models::SelectorOperator::Exists => SelectorOperator::Exists,
            models::SelectorOperator::DoesNotExist => SelectorOperator::DoesNotExist,
            models::SelectorOperator::GreaterThan => SelectorOperator::GreaterThan,
            models::SelectorOperator::LessThan => SelectorOperator::LessThan,
        },
        value: selector.value,
    }
}
