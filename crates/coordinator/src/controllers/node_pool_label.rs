//! Node pool label controller: ensures that every Node has the labels of all `NodePoolLabel`s of its node pool, and no
//! others under the prefix `nodepool.containership.io/`.
//!
//! Which node pool a Node is in: [`node_pools`](crate::node_pools). The labels are written by
//! [`node_labels`](super::node_labels), in one patch with those of the cluster.

use tidewaiter_api::containership::NodePoolLabel;
use tidewaiter_api::{LabelKey, LabelValue};
use tidewaiter_cloud::models::NODE_POOL_LABEL_PREFIX;

use super::labels::LabelResource;

impl LabelResource for NodePoolLabel {
    const CONTROLLER: &'static str = "node-pool-label";
    const PREFIX: &'static str = NODE_POOL_LABEL_PREFIX;

    fn label(&self) -> (&LabelKey, &LabelValue) {
        (&self.spec.key, &self.spec.value)
    }

    fn pool(&self) -> Option<&LabelValue> {
        Some(&self.spec.node_pool_id)
    }

    fn created_at(&self) -> &str {
        &self.spec.created_at
    }
}
