//! Upgrades of the cluster. The upgrade controller writes their progress.

use kube::Client;
use kube::ResourceExt as _;
use tidewaiter_api::containership::{ClusterUpgrade, ClusterUpgradeSpec, NodeSelector, SelectorOperator, UpgradeType};
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, MANAGED_LABEL, MANAGED_VALUE};
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::Cache;
use tidewaiter_kit::cache::CacheBuilder;

use crate::mirror::kind::{Listed, MirroredKind, named};

/// The upgrades of the cluster that the cloud ordered.
pub(crate) struct Upgrades;

impl MirroredKind for Upgrades {
    const NAME: &'static str = "upgrades";
    const CONTROLLER: &'static str = "sync-upgrades";
    const CHANGED: &'static [Kind] = &[Kind::Upgrade];
    type Object = models::Upgrade;
    type Resource = ClusterUpgrade;

    fn cache(&self, reader: Client) -> CacheBuilder<ClusterUpgrade> {
        Cache::namespaced(reader, CONTAINERSHIP_NAMESPACE)
    }

    fn listed(&self, cluster: Cluster) -> Listed {
        Listed::At(cluster.upgrades())
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
                policy: None,
                status: None,
            },
            status: None,
        })
    }

    /// What a person or another program created is left alone, also if it has an id and the label: people copy upgrades to repeat them.
    fn ours(&self, upgrade: &ClusterUpgrade) -> bool {
        let manager = format!("tidewaiter/{}", Self::CONTROLLER);
        let fields = upgrade.managed_fields();
        fields.iter().any(|entry| entry.manager.as_ref() == Some(&manager))
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
