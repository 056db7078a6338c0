//! Labels of every node of the cluster.

use tidewaiter_api::containership::{ClusterLabel, ClusterLabelSpec};
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;

use crate::mirror::kind::{CacheOf, Listed, MirroredKind, in_core, named};

pub(crate) struct ClusterLabels;

impl MirroredKind for ClusterLabels {
    const NAME: &'static str = "cluster-labels";
    const CONTROLLER: &'static str = "sync-cluster-labels";
    const CHANGED: &'static [Kind] = &[Kind::ClusterLabel];
    const CACHE: CacheOf<ClusterLabel> = in_core;
    const LISTED: Listed = Listed::At(Cluster::labels);
    type Object = models::ClusterLabel;
    type Resource = ClusterLabel;

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
