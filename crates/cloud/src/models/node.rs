//! Nodes of a node pool, and the status that a cluster reports of them.

use tidewaiter_api::{NodeName, ProviderId};

use super::fields::model;
use super::values::{NodeId, NodePoolId, UnixMillis};
use super::{Facts, Kind, OpenObject, OrgRole, Resource, Status, schema};

model! {
    /// The settings of a node; the cluster reports everything else.
    NodeSpec, "a node" =>
    /// The name of the Node in the cluster, unique within it. It decides to which node pool that Node belongs.
    optional name: Option<NodeName> as Option<schema::NodeName>,
    /// The `spec.providerID` of the Node.
    optional provider_id: Option<ProviderId> as Option<schema::NodeProviderId>,
}

model! {
    /// A node.
    Node, NodeSpec::KIND =>
    required id: NodeId,
    flatten spec: NodeSpec,
    or_default status: Status,
    /// Always empty, because clusters do not report addresses. Clients of the original service follow it without a
    /// check.
    or_default addresses: OpenObject,
    required created_at: UnixMillis,
    required updated_at: UnixMillis,
    required node_pool_id: NodePoolId,
}

model! {
    /// The body of `PUT …/nodes/N/status`.
    #[schema(as = StatusReport)]
    NodeStatusReport, "the status of a node" =>
    /// The status of the node.
    required status: Status,
}

impl Resource for NodeSpec {
    type Object = Node;

    const FACTS: Facts = Facts {
        quota: 100_000,
        tag: "Node pools",
        writers: OrgRole::Admin,
        has_older_forms: true,
        columns: &["name", "node_pool_id", "status", "updated_at"],
        about: "Nodes of a node pool or of a cluster",
        aliases: &["node"],
        is_declared: false,
        ..Facts::of::<Self>(Kind::Node, "nodes", &[Kind::NodePool])
    };
}
