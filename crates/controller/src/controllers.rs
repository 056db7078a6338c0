//! The controllers of the role in one table, and the caches that they share.

use std::sync::Arc;

use kube::Client;
use tidewaiter_api::ClusterName;
use tidewaiter_identity::{CloudGroups, Lookup};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Cache, ControllerContext, Kit, Tasks};
use tidewaiter_kops::Definitions;
use tidewaiter_validation::{Options, Pod, matters};

use crate::node_controller::{LabelsFrom, NodeControllerParts, Policy};
use crate::objects::{Node, Record};
use crate::verdicts::VerdictParts;
use crate::{MetricsServer, cluster_health, node_controller, verdicts};

/// Pods in a page of their list: 150,000 Pods are 300 pages.
const POD_PAGE: u32 = 500;

/// What the role works with.
pub struct ControllerRole {
    /// The cluster.
    pub cluster: ClusterName,
    /// A client for each controller, whose writes pass only while this replica leads.
    pub clients: Clients,
    /// Who a Node is.
    pub identities: Arc<Lookup>,
    /// What the InstanceGroups give their Nodes.
    pub definitions: Definitions,
    /// The cloud's groups of instances.
    pub groups: Arc<dyn CloudGroups>,
    /// What the operator wants done beyond labelling.
    pub policy: Policy,
    /// What the verdict tolerates.
    pub options: Options,
}

/// The kinds that the controllers read, each followed once.
#[derive(Clone, Debug)]
pub struct Caches {
    /// Compressed: thousands are held, and each pass reads one.
    pub nodes: Cache<Node>,
    /// As the Nodes.
    pub records: Cache<Record>,
    /// Only those that can change a verdict.
    pub pods: Cache<Pod>,
}

impl Caches {
    /// Starts all of them.
    #[must_use]
    pub fn start(client: &Client, tasks: &mut Tasks, kit: &Kit) -> Self {
        Self {
            nodes: Cache::all(client.clone()).packed().start(tasks, kit),
            records: Cache::all(client.clone()).packed().start(tasks, kit),
            pods: Cache::all(client.clone())
                .page_size(POD_PAGE)
                .keep(matters)
                .packed()
                // Nodes are labelled without them.
                .optional()
                .start(tasks, kit),
        }
    }
}

/// Starts every controller of the role. Those that write begin when this replica leads.
///
/// | controller | reads | writes |
/// | --- | --- | --- |
/// | NodeController | Nodes, records, cloud, state store | labels and the startup taint of Nodes, NodeIdentity |
/// | ClusterHealth | the verdict | ClusterHealth |
/// | MetricsServer | the verdict, components | nothing |
///
/// # Errors
/// When a metric's name is taken.
pub fn start(
    role: ControllerRole,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<Arc<MetricsServer>, MetricsError> {
    let client = |controller| role.clients.for_controller(controller, DEFAULT_IN_FLIGHT);
    let caches = Caches::start(&client("caches"), tasks, &context.kit);
    let definitions = (role.policy.labels_from != LabelsFrom::Tags).then(|| role.definitions.clone());
    if let Some(definitions) = &definitions {
        require_cluster(definitions, &context.kit);
    }
    let verdicts = VerdictParts {
        cluster: role.cluster.clone(),
        nodes: caches.nodes.clone(),
        records: caches.records.clone(),
        pods: caches.pods,
        definitions,
        cloud: role.groups,
        options: role.options,
        client: client("verdict"),
    };
    let nodes = NodeControllerParts {
        nodes: caches.nodes,
        records: caches.records,
        client: role.clients.for_controller("node", MOST_IN_FLIGHT),
        identities: role.identities,
        definitions: role.definitions,
        policy: role.policy,
    };
    node_controller::start(nodes, context, tasks)?;
    let latest = verdicts::start(verdicts, tasks, &context.kit)?;
    let health = client("cluster-health");
    cluster_health::start(role.cluster.clone(), health, latest.clone(), context, tasks);
    Ok(MetricsServer::start(
        role.cluster,
        client("metrics-server"),
        latest,
        tasks,
        &context.kit,
    ))
}

/// Makes the Cluster a condition of readiness, and of being preferred as the leader. A replica that cannot read it may lead nevertheless, when no other replica can: then it
/// says on each Node why that gets no labels.
pub fn require_cluster(definitions: &Definitions, kit: &Kit) {
    definitions.require_cluster();
    let checked = definitions.clone();
    kit.checks.prefer("state-store", move || checked.check());
}
