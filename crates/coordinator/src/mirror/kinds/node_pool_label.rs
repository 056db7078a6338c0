//! Labels of every node of a node pool.

use tidewaiter_api::LabelValue;
use tidewaiter_api::containership::{NodePoolLabel, NodePoolLabelSpec};
use tidewaiter_api::names::NODE_POOL_LABEL;
use tidewaiter_cloud::client::Cluster;
use tidewaiter_cloud::models;
use tidewaiter_cloud::models::Kind;

use crate::mirror::kind::{CacheOf, Listed, MirroredKind, Source, in_core, named};

/// The labels of the node pools. Each carries the id of its pool as a label, as readers of the old resources select
/// them.
pub(crate) struct NodePoolLabels;

impl MirroredKind for NodePoolLabels {
    const NAME: &'static str = "node-pool-labels";
    const CONTROLLER: &'static str = "sync-node-pool-labels";
    const CHANGED: &'static [Kind] = &[Kind::NodePoolLabel, Kind::NodePool];
    const CACHE: CacheOf<NodePoolLabel> = in_core;
    const LISTED: Listed = Listed::OfEachPool(Cluster::node_pool_labels);
    type Object = models::NodePoolLabel;
    type Resource = NodePoolLabel;

    fn scope(&self, label: &NodePoolLabel) -> String {
        label.spec.node_pool_id.to_string()
    }

    fn belongs(&self, label: &models::NodePoolLabel, source: &Source) -> bool {
        source.is_of_pool(label.node_pool_id)
    }

    fn called(&self, label: &NodePoolLabel) -> String {
        format!("{}={}", label.spec.key, label.spec.value)
    }

    fn resource(&self, label: models::NodePoolLabel) -> Option<NodePoolLabel> {
        let pool = label.node_pool_id.to_string();
        let mut metadata = named(&label.id);
        metadata.labels = Some([(NODE_POOL_LABEL.to_owned(), pool.clone())].into());
        let spec = NodePoolLabelSpec {
            id: label.id.to_string(),
            created_at: label.created_at.to_string(),
            updated_at: label.updated_at.to_string(),
            key: label.spec.key,
            value: label.spec.value,
            // A UUID is a valid value.
            node_pool_id: pool.parse::<LabelValue>().ok()?,
        };
        Some(NodePoolLabel { metadata, spec })
    }
}
