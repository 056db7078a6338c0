//! Labels for all nodes of a cluster or of a node pool. A key is whole: it has the prefix that it has on the node, both
//! in requests and in responses. Each kind has its own prefix, and nothing outside it is ours.

use tidewaiter_api::{LabelKey, LabelValue};

use super::fields::model;
use super::values::{ClusterLabelId, NodePoolId, NodePoolLabelId, UnixMillis};
use super::{Facts, Fields, InvalidField, Kind, OrgRole, Resource, schema};

pub const CLUSTER_LABEL_PREFIX: &str = "cluster.containership.io/";

pub const NODE_POOL_LABEL_PREFIX: &str = "nodepool.containership.io/";

model! {
    /// The settings of a cluster label. The key begins with `cluster.containership.io/`.
    ClusterLabelSpec, "a cluster label" =>
    label_key(CLUSTER_LABEL_PREFIX) key: LabelKey as schema::ClusterLabelKey,
    or_default value: LabelValue as Option<schema::LabelValue>,
}

model! {
    /// The settings of a node pool label. The key begins with `nodepool.containership.io/`.
    NodePoolLabelSpec, "a node pool label" =>
    label_key(NODE_POOL_LABEL_PREFIX) key: LabelKey as schema::NodePoolLabelKey,
    or_default value: LabelValue as Option<schema::LabelValue>,
}

model! {
    /// A label of all nodes of a cluster.
    ClusterLabel, ClusterLabelSpec::KIND =>
    required id: ClusterLabelId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    flatten spec: ClusterLabelSpec,
}

model! {
    /// A label of all nodes of a node pool.
    NodePoolLabel, NodePoolLabelSpec::KIND =>
    required id: NodePoolLabelId,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    flatten spec: NodePoolLabelSpec,
    required node_pool_id: NodePoolId,
}

impl Fields<'_> {
    /// The key of a label, which must begin with `prefix`.
    fn label_key(&mut self, field: &'static str, prefix: &str) -> Result<LabelKey, InvalidField> {
        let key: LabelKey = self.required(field)?;
        if key.as_str().starts_with(prefix) {
            return Ok(key);
        }
        let name = key.as_str().rsplit('/').next().unwrap_or_default();
        let reason = format!("\"{key}\" must begin with {prefix}: write {prefix}{name}");
        Err(self.invalid(field, reason))
    }
}

impl Resource for ClusterLabelSpec {
    type Object = ClusterLabel;

    const FACTS: Facts = Facts {
        quota: 100_000,
        tag: "Labels",
        writers: OrgRole::Member,
        key: &["key"],
        columns: &["key", "value"],
        about: "Labels for all nodes of a cluster",
        aliases: &["label"],
        ..Facts::of::<Self>(Kind::ClusterLabel, "labels", &[Kind::Cluster])
    };
}

impl Resource for NodePoolLabelSpec {
    type Object = NodePoolLabel;

    const FACTS: Facts = Facts {
        quota: 100_000,
        segment: "labels",
        tag: "Labels",
        writers: OrgRole::Member,
        key: &["key"],
        columns: &["key", "value"],
        about: "Labels for all nodes of a node pool",
        aliases: &["node-pool-label"],
        ..Facts::of::<Self>(Kind::NodePoolLabel, "node-pool-labels", &[Kind::NodePool])
    };
}
