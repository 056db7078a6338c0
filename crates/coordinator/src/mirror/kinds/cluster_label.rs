//! Labels of every node of the cluster.

use kube::Client;
use tidewaiter_api::containership::{ClusterLabel, ClusterLabelSpec};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::Cache;
use tidewaiter_kit::cache::CacheBuilder;

use crate::mirror::kind::{Listed, MirroredKind, named};

pub(crate) struct ClusterLabels;

impl MirroredKind for ClusterLabels {
    const NAME: &'static str = "cluster-labels";
    const CONTROLLER: &'static str = "sync-cluster-labels";
    const CHANGED: &'static [Kind] = &[Kind::ClusterLabel];
    type Object = models::ClusterLabel;
    type Resource = ClusterLabel;

    fn cache(&self, reader: Client) -> CacheBuilder<ClusterLabel> {
        Cache::namespaced(reader, CONTAINERSHIP_NAMESPACE)
    }

    fn listed(&self, cluster: Cluster) -> Listed {
        Listed::At(cluster.labels())
    }

    fn called(&self, label: &ClusterLabel) -> String {
        format!("{}={}", label.spec.key, label.spec.value)
    }

    fn resource(&self, label: models::ClusterLabel) -> Option<ClusterLabel> {
        let spec = ClusterLabelSpec {
            id: label.id.to_string(),
            created_at: label.created_at.to_string(),
            updated_at: label.updated_at.to_string(),
            key: label.spec.key,
            value: label.spec.value,
        };
        Some(ClusterLabel {
            metadata: named(&spec.id),
            spec,
        })
    }
}
