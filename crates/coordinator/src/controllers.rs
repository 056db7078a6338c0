//! The controllers of the role in one table, and the caches that they share.

mod cluster_label;
mod containership;
mod labels;
mod node_labels;
mod node_pool_label;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_api::containership::{ClusterLabel, NodePoolLabel};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Cache, ControllerContext, Metadata, Tasks};

use crate::node_pools::sync::CloudNodes;
use crate::node_pools::{NodePools, PoolMembers, sync};
use labels::Labels;
pub(crate) use node_labels::Node;
use node_labels::NodeLabelParts;

/// How the controllers know in which node pool a Node is.
#[derive(Clone, Debug)]
pub struct NodePoolSource {
    /// What decides.
    pub setting: NodePools,
    /// Where the cloud lists the nodes. Without it, only [`NodePools::Label`] puts a Node into a node pool.
    pub cloud: Option<CloudNodes>,
}

/// Starts every controller of the role. They write when this replica leads.
///
/// | controller | reads | writes |
/// | --- | --- | --- |
/// | containership | Namespaces | the service account `containership` in each of them |
/// | cluster-label, node-pool-label | `ClusterLabel`s, `NodePoolLabel`s | nothing: they report on those that do not count |
/// | node-labels | Nodes, `ClusterLabel`s, `NodePoolLabel`s, the nodes of the cloud | labels of Nodes |
///
/// # Errors
/// When a metric's name is taken.
pub fn start(
    node_pools: NodePoolSource,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<(), MetricsError> {
    let kit = &context.kit;
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let namespaces = Cache::<Metadata<Namespace>>::metadata(reader.clone()).start(tasks, kit);
    let writer = clients.for_controller("containership", MOST_IN_FLIGHT);
    containership::start(&namespaces, &reader, writer, context, tasks);
    // Packed: thousands are held, and each pass reads one.
    let nodes = Cache::<Node>::all(reader.clone()).packed().start(tasks, kit);
    let cluster_labels = Arc::new(Labels::<ClusterLabel>::start(reader.clone(), tasks, kit));
    let node_pool_labels = Arc::new(Labels::<NodePoolLabel>::start(reader, tasks, kit));
    labels::start(&cluster_labels, context, tasks);
    labels::start(&node_pool_labels, context, tasks);
    let members = PoolMembers::default();
    let NodePoolSource { setting, cloud } = node_pools;
    if let Some(cloud) = cloud.filter(|_| setting != NodePools::Label) {
        sync::start(cloud, setting, &nodes, members.clone(), context, tasks)?;
    }
    let parts = NodeLabelParts {
        nodes,
        cluster_labels,
        node_pool_labels,
        setting,
        members,
        client: clients.for_controller("node-labels", MOST_IN_FLIGHT),
    };
    node_labels::start(parts, context, tasks)
}
