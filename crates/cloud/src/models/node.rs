//! Nodes of a node pool, and the status that a cluster reports of them.

use jiff::Timestamp;
use serde::Serialize;
use utoipa::ToSchema;

use super::document::InvalidField;
use super::fields::{Fields, Model};
use super::status::Status;
use super::values::NodeId;

/// The settings of a node. There are none; the cluster reports everything else.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NodeSpec {}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Node {
    pub id: NodeId,
    pub status: Option<Status>,
    pub created_at: Timestamp,
    pub updated_at: Timestamp,
}

/// The body of `PUT …/nodes/N/status`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct NodeStatusReport {
    /// The status of the node.
    pub status: Status,
}

impl Model for NodeSpec {
    const KIND: &'static str = "a node";

    fn take(_: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {})
    }
}

impl Model for Node {
    const KIND: &'static str = NodeSpec::KIND;

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            id: fields.required("id")?,
            status: fields.nullable("status")?,
            created_at: fields.required("created_at")?,
            updated_at: fields.required("updated_at")?,
        })
    }
}

impl Model for NodeStatusReport {
    const KIND: &'static str = "the status of a node";

    fn take(fields: &mut Fields<'_>) -> Result<Self, InvalidField> {
        Ok(Self {
            status: fields.required("status")?,
        })
    }
}
