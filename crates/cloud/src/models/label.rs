//! Labels for all nodes of a cluster or of a node pool. A key is whole: it has the prefix that it has on the node, both
//! in requests and in responses. Each kind has its own prefix, and nothing outside it is ours.

use serde::Serialize;
use tidewaiter_api::{LabelKey, LabelValue};
use utoipa::ToSchema;

use super::Kind;
use super::document::InvalidField;
use super::fields::{Fields, Model, model};
use super::org_role::OrgRole;
use super::resource::{Facts, Resource};
use super::schema;
use super::values::{ClusterLabelId, NodePoolId, NodePoolLabelId, UnixMillis};

/// The prefix of every cluster label's key.
pub const CLUSTER_LABEL_PREFIX: &str = "cluster.containership.io/";

/// The prefix of every node pool label's key.
pub const NODE_POOL_LABEL_PREFIX: &str = "nodepool.containership.io/";

/// The settings of a cluster label. The key begins with `cluster.containership.io/`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct ClusterLabelSpec {
    #[schema(value_type = schema::ClusterLabelKey)]
    pub key: LabelKey,
    #[schema(value_type = Option<schema::LabelValue>)]
    pub value: LabelValue,
}

/// The settings of a node pool label. The key begins with `nodepool.containership.io/`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct NodePoolLabelSpec {
    #[schema(value_type = schema::NodePoolLabelKey)]
    pub key: LabelKey,
    #[schema(value_type = Option<schema::LabelValue>)]
    pub value: LabelValue,
}

/// A label of all nodes of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct ClusterLabel {
    pub id: ClusterLabelId,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    #[serde(flatten)]
    pub spec: ClusterLabelSpec,
}

/// A label of all nodes of a node pool.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct NodePoolLabel {
    pub id: NodePoolLabelId,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    #[serde(flatten)]
    pub spec: NodePoolLabelSpec,
    pub node_pool_id: NodePoolId,
}

/// The key of a label, which must begin with `prefix`.
fn key(fields: &mut Fields<'_>, prefix: &str) -> Result<LabelKey, InvalidField> {
    let key: LabelKey = fields.required("key")?;
    if key.as_str().starts_with(prefix) {
        return Ok(key);
    }
    let name = key.as_str().rsplit('/').next().unwrap_or_default();
    let reason = format!("\"{key}\" must begin with {prefix}: write {prefix}{name}");
    Err(fields.invalid("key", reason))
}

impl Resource for ClusterLabelSpec {
    type Object = ClusterLabel;

    const FACTS: Facts = Facts {
        quota: 100_000,
        tag: "Labels",
        writers: OrgRole::Member,
        generated: &["id", "created_at", "updated_at"],
        key: &["key"],
        columns: &["key", "value"],
        about: "Labels for all nodes of a cluster",
        aliases: &["label"],
        ..Facts::of(Kind::ClusterLabel, "labels", Self::KIND, &[Kind::Cluster])
    };
}

impl Model for ClusterLabelSpec {
    const KIND: &'static str = "a cluster label";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            key: key(fields, CLUSTER_LABEL_PREFIX)?,
            value: fields.or_default("value")?,
        })
    }
}

impl Resource for NodePoolLabelSpec {
    type Object = NodePoolLabel;

    const FACTS: Facts = Facts {
        quota: 100_000,
        segment: "labels",
        tag: "Labels",
        writers: OrgRole::Member,
        generated: &["id", "created_at", "updated_at", "node_pool_id"],
        key: &["key"],
        columns: &["key", "value"],
        about: "Labels for all nodes of a node pool",
        aliases: &["node-pool-label"],
        ..Facts::of(Kind::NodePoolLabel, "node-pool-labels", Self::KIND, &[Kind::NodePool])
    };
}

impl Model for NodePoolLabelSpec {
    const KIND: &'static str = "a node pool label";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            key: key(fields, NODE_POOL_LABEL_PREFIX)?,
            value: fields.or_default("value")?,
        })
    }
}

model! { ClusterLabel, ClusterLabelSpec::KIND => required { id, created_at, updated_at } flatten { spec } }

model! {
    NodePoolLabel, NodePoolLabelSpec::KIND =>
    required { id, created_at, updated_at } flatten { spec } required { node_pool_id }
}
