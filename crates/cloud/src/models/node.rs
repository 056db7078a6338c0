//! Nodes of a node pool, and the status that a cluster reports of them.

use serde::Serialize;
use tidewaiter_api::{NodeName, ProviderId};
use utoipa::ToSchema;

use super::Kind;
use super::fields::{Model, model};
use super::org_role::OrgRole;
use super::resource::{Facts, Resource};
use super::schema;
use super::status::Status;
use super::values::{NodeId, NodePoolId, UnixMillis};

/// The settings of a node; the cluster reports everything else.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
pub struct NodeSpec {
    /// The name of the Node in the cluster, unique within it. It decides to which node pool that Node belongs.
    #[schema(value_type = Option<schema::NodeName>)]
    pub name: Option<NodeName>,
    /// The `spec.providerID` of the Node.
    #[schema(value_type = Option<schema::NodeProviderId>)]
    pub provider_id: Option<ProviderId>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[expect(missing_docs, reason = "each variant is a field of the API")]
pub struct Node {
    pub id: NodeId,
    #[serde(flatten)]
    pub spec: NodeSpec,
    #[schema(value_type = Option<Status>)]
    pub status: Status,
    pub created_at: UnixMillis,
    pub updated_at: UnixMillis,
    pub node_pool_id: NodePoolId,
}

/// The body of `PUT …/nodes/N/status`.
#[derive(Clone, Debug, PartialEq, Serialize, ToSchema)]
#[schema(as = StatusReport)]
pub struct NodeStatusReport {
    /// The status of the node.
    pub status: Status,
}

impl Resource for NodeSpec {
    type Object = Node;

    const FACTS: Facts = Facts {
        quota: 100_000,
        tag: "Node pools",
        writers: OrgRole::Member,
        generated: &["id", "status", "created_at", "updated_at", "node_pool_id"],
        has_older_forms: true,
        columns: &["name", "node_pool_id", "status", "updated_at"],
        about: "Nodes of a node pool or of a cluster",
        aliases: &["node"],
        is_declared: false,
        ..Facts::of(Kind::Node, "nodes", Self::KIND, &[Kind::NodePool])
    };
}

model! { NodeSpec, "a node" => optional { name, provider_id } }

model! {
    Node, NodeSpec::KIND =>
    required { id } flatten { spec } or_default { status } required { created_at, updated_at, node_pool_id }
}

model! { NodeStatusReport, "the status of a node" => required { status } }
