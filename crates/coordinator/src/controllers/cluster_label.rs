//! Cluster label controller: ensures that every Node has the labels of all `ClusterLabel`s, and no others under the
//! prefix `cluster.containership.io/`.
//!
//! The labels are written by [`node_labels`](super::node_labels), in one patch with those of the node pool.

use tidewaiter_api::containership::ClusterLabel;
use tidewaiter_api::{LabelKey, LabelValue};
use tidewaiter_cloud::models::CLUSTER_LABEL_PREFIX;

use super::labels::LabelResource;

impl LabelResource for ClusterLabel {
    const CONTROLLER: &'static str = "cluster-label";
    const PREFIX: &'static str = CLUSTER_LABEL_PREFIX;

    fn label(&self) -> (&LabelKey, &LabelValue) {
        (&self.spec.key, &self.spec.value)
    }

    fn pool(&self) -> Option<&LabelValue> {
        None
    }

    fn created_at(&self) -> &str {
        &self.spec.created_at
    }
}
