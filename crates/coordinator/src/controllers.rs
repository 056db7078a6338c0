//! The controllers of the role in one table, and the caches that they share.

mod cluster_label;
mod containership;
mod labels;
mod node_labels;
mod node_pool_label;
mod registry;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_api::containership::{ClusterLabel, NodePoolLabel};
use tidewaiter_cloud::client::{ChangedKind, Client, Cluster};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, ControllerContext, Metadata, Tasks};

pub use registry::RegistrySettings;

use crate::changes::Changes;
use crate::endpoints::{self, Port};
use crate::mirror::{self, MassDeletion, MirrorSettings};
use crate::node_pools::sync::{self, CloudNodes};
use crate::node_pools::{NodePools, PoolMembers};
use crate::reports;
use crate::terminate::Termination;
use labels::Labels;
pub(crate) use node_labels::Node;
use node_labels::NodeLabelParts;

/// The cloud that is mirrored, and this cluster in it.
#[derive(Clone, Debug)]
pub struct Cloud {
    /// The client, with the API key of the cluster.
    pub client: Client,
    /// This cluster.
    pub cluster: Cluster,
    /// The sync interval: how often the cloud is polled.
    pub interval: Duration,
}

/// What the operator decides.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    /// What lets a mass deletion take place.
    pub mass_deletion: MassDeletion,
    /// Pull secrets, and where the credentials of registries are stored.
    pub registries: RegistrySettings,
    /// What decides in which node pool a Node is.
    pub node_pools: NodePools,
}

/// How the controllers know in which node pool a Node is.
#[derive(Clone, Debug)]
pub struct NodePoolSource {
    /// What decides.
    pub setting: NodePools,
    /// Where the cloud lists the nodes. Without it, only [`NodePools::Label`] puts a Node into a node pool.
    pub cloud: Option<CloudNodes>,
}

/// Why the role cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The certificate of the endpoints cannot be used.
    #[error("the certificate of the endpoints cannot be used")]
    Certificate(#[from] rustls::Error),
    /// A metric is registered twice.
    #[error("the metrics of the controllers cannot be registered")]
    Metrics(#[from] MetricsError),
    /// The HTTP client cannot be made.
    #[error("the client that tries credentials cannot be made: it needs the certificate authorities of the system")]
    Http(#[from] reqwest::Error),
}

/// Starts every controller of the role. They write when this replica leads, and while everything is to be removed, only `terminate` does.
///
/// | controller | reads | writes |
/// | --- | --- | --- |
/// | sync-…, cloud-sync | what the cloud lists | the mirrored kinds ([`mirror::start`] lists them), and `CloudSync` |
/// | containership | Namespaces, service accounts, Registries | the service account `containership` in each namespace; `imagePullSecrets` of it and of the accounts that the settings name |
/// | registry | Registries, Secrets of `containership-core` | the pull secret of each Registry in `containership-core` |
/// | pullsecret | Namespaces, pull secrets, Registries | the pull secret of each Registry in each namespace |
/// | cluster-label, node-pool-label | `ClusterLabel`s, `NodePoolLabel`s | nothing: they report on those that do not count |
/// | node-labels | Nodes, `ClusterLabel`s, `NodePoolLabel`s, the nodes of the cloud | labels of Nodes |
/// | reports | Nodes, the nodes of the cloud | the status of the nodes and of the cluster, in the cloud |
/// | terminate | the request to remove everything | deletes what its table lists |
///
/// # Errors
/// [`StartError`]; nothing was written.
pub fn start(cloud: &Cloud, decisions: &Decisions, port: Port, mut role: Role<'_>) -> Result<(), StartError> {
    let (termination, pause) = Termination::start(&mut role);
    endpoints::start(port, cloud, termination, &mut role)?;
    let Role {
        context,
        clients,
        tasks,
        ..
    } = role;
    let context = ControllerContext { pause, ..context };
    let kit = &context.kit;
    let Cloud {
        client,
        cluster,
        interval,
    } = cloud.clone();
    let changes = Changes::start(client.clone(), cluster, context.leadership.clone(), tasks);
    let mirrored = MirrorSettings {
        client: client.clone(),
        cluster,
        interval,
        mass_deletion: decisions.mass_deletion,
        registry_credentials: decisions.registries.registry_credentials,
    };
    mirror::start(mirrored, &changes, &clients, &context, tasks)?;

    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let namespaces = Cache::<Metadata<Namespace>>::metadata(reader.clone())
        .page_size(500)
        .packed()
        .start(tasks, kit);
    let shared = Shared {
        clients: &clients,
        reader: reader.clone(),
        namespaces,
        context: &context,
    };
    let shelf = registry::start(&decisions.registries, &shared, tasks)?;
    containership::start(&decisions.registries, &shared, shelf, tasks);

    let asked = changes.of(&[ChangedKind::Nodes, ChangedKind::NodePools]);
    let node_pools = NodePoolSource {
        setting: decisions.node_pools,
        cloud: Some(CloudNodes {
            client,
            cluster,
            interval,
            asked,
        }),
    };
    label_nodes(node_pools, &clients, &context, tasks)?;
    reports::start(cloud, &changes, reader, &context, tasks);
    Ok(())
}

/// Starts the controllers of the labels of Nodes.
///
/// # Errors
/// When a metric's name is taken.
pub fn label_nodes(
    node_pools: NodePoolSource,
    clients: &Clients,
    context: &ControllerContext,
    tasks: &mut Tasks,
) -> Result<(), MetricsError> {
    let kit = &context.kit;
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
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

/// What the controllers share.
struct Shared<'a> {
    clients: &'a Clients,
    reader: kube::Client,
    namespaces: Cache<Metadata<Namespace>>,
    context: &'a ControllerContext,
}
