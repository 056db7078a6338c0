//! Labels for all nodes of a cluster or of a node pool. On the node, each kind has its own prefix.

use jiff::Timestamp;
use serde::Serialize;
use tidewaiter_api::{LabelKey, LabelValue};
use utoipa::ToSchema;

use super::document::InvalidField;
use super::fields::{Fields, Model};
use super::schema;
use super::values::{ClusterLabelId, NodePoolId, NodePoolLabelId};

/// The settings of a label. The key is a bare name: the prefix is added on the node, where nothing outside it is
/// ours, and a key has room for one prefix only.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct LabelSpec {
    #[schema(value_type = schema::LabelName)]
    pub key: LabelKey,
    #[schema(value_type = Option<schema::LabelValue>)]
    pub value: LabelValue,
}

/// A label of all nodes of a cluster; on a node its key is `cluster.containership.io/KEY`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct ClusterLabel {
    pub id: ClusterLabelId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(flatten)]
    pub spec: LabelSpec,
}

/// A label of all nodes of a node pool; on a node its key is `nodepool.containership.io/KEY`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct NodePoolLabel {
    pub id: NodePoolLabelId,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
    #[serde(flatten)]
    pub spec: LabelSpec,
    pub node_pool_id: NodePoolId,
}

impl Model for LabelSpec {
    const KIND: &'static str = "a label";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        let spec = Self {
            key: fields.required("key")?,
            value: fields.or_default("value")?,
        };
        if spec.key.as_str().contains('/') {
            let reason = format!(
                "\"{}\" has a prefix; remove it, because the node's label gets its own prefix",
                spec.key
            );
            return Err(fields.invalid("key", reason));
        }
        Ok(spec)
    }
}

impl Model for ClusterLabel {
    const KIND: &'static str = "a cluster label";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            id: fields.required("id")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
            spec: LabelSpec::take(fields)?,
        })
    }
}

impl Model for NodePoolLabel {
    const KIND: &'static str = "a node pool label";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            id: fields.required("id")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
            spec: LabelSpec::take(fields)?,
            node_pool_id: fields.required("node_pool_id")?,
        })
    }
}
