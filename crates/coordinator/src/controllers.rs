//! The controllers of the resources, and the caches that they share.

mod authorization_role;
mod authorization_role_binding;
mod cluster_label;
mod containership;
mod labels;
mod listed;
mod node_labels;
mod node_pool_label;
mod plugin;
mod rbac;
mod registry;
pub mod upgrade;

use std::sync::Arc;

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding, ClusterLabel, NodePoolLabel};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, ControllerContext, Metadata};

pub use authorization_role::{Ceiling, Limits, Refused, Why, lost_rules, plan_rules};
pub use authorization_role_binding::Wait;
pub(crate) use containership::{Account, detached};
pub use plugin::{
    Approval, ByPlugin, DIFF_KEY, Difference, ObjectChange, Operation, PluginAccount, PluginApproval, PluginDiff,
    PluginDrift, PluginSettings, PluginSync, start as apply_plugins,
};
pub(crate) use plugin::{PluginError, PluginRemoval};
pub use rbac::{OURS, RbacSettings, is_ours};
pub use registry::{RegistrySettings, check_registry};
pub use upgrade::{Upgrades, start as upgrade_nodes};

use crate::changes::Changes;
use crate::cloud::Cloud;
use crate::mirror::{CloudLists, Held, MassDeletion, Mirrored};
use crate::node::Node;
use crate::node_pools::sync::{self, CloudNodes};
use crate::node_pools::{NodePools, PoolMembers};
use labels::Labels;
use node_labels::NodeLabelParts;
use rbac::Rbac;
use registry::RegistryLists;
use tidewaiter_cloud::models::Kind;

/// The operator's settings.
#[derive(Clone, Debug)]
pub struct Decisions {
    /// The condition under which a mass deletion takes place.
    pub mass_deletion: MassDeletion,
    /// Pull secrets, and where the credentials of registries are stored.
    pub registries: RegistrySettings,
    /// The source of each Node's node pool.
    pub node_pools: NodePools,
    /// The limits of the cloud's roles.
    pub rbac: RbacSettings,
    /// The limits of the cloud's plugins.
    pub plugins: PluginSettings,
    /// The setting of node upgrades.
    pub upgrades: Upgrades,
    /// True if releases and approvals from the cloud are obeyed.
    pub accept_releases_from_cloud: bool,
}

/// The source of each Node's node pool.
#[derive(Clone, Debug)]
pub struct NodePoolSource {
    /// The setting.
    pub setting: NodePools,
    /// The cloud's list of nodes. Without it, only [`NodePools::Label`] puts a Node into a node pool.
    pub cloud: Option<CloudNodes>,
}

/// The reason why the role cannot start.
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

/// Starts every controller of the table in [`crate::start()`] that concerns the cluster. `lists` is what the mirror
/// lists. Returns the Nodes.
///
/// # Errors
/// [`StartError`]; nothing was written.
pub(crate) fn start(
    cloud: &Cloud,
    decisions: &Decisions,
    lists: CloudLists,
    changes: &Changes,
    role: &mut Role<'_>,
) -> Result<Cache<Node>, StartError> {
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let namespaces = Cache::<Metadata<Namespace>>::metadata(reader.clone())
        .page_size(500)
        .packed()
        .start(tasks, &context.kit);
    let shared = Shared {
        clients,
        reader: reader.clone(),
        namespaces,
        registry_lists: Some(RegistryLists {
            registries: lists.registries,
            credentials: lists.registry_credentials,
        }),
        context,
    };
    let shelf = registry::start(&decisions.registries, &shared, tasks)?;
    containership::start(&decisions.registries, &shared, shelf, tasks);
    let namespaces = shared.namespaces;
    let access = (lists.roles, lists.role_bindings, lists.held_roles);
    control_access(decisions.rbac.clone(), Some(access), namespaces.clone(), role)?;
    apply_plugins(decisions.plugins.clone(), cloud, lists.plugins, &namespaces, role)?;
    let node_pools = NodePoolSource {
        setting: decisions.node_pools,
        cloud: Some(CloudNodes {
            cloud: cloud.clone(),
            asked: changes.of(&[Kind::Node, Kind::NodePool]),
        }),
    };
    let nodes = cache_nodes(&reader, role);
    let labels = (lists.cluster_labels, lists.node_pool_labels);
    label_cached(nodes.clone(), (node_pools, lists.held_nodes), Some(labels), role)?;
    if decisions.upgrades == Upgrades::Enabled {
        upgrade_nodes(role)?;
    }
    Ok(nodes)
}

/// The mirror's roles and role bindings, and the roles that are held.
pub type MirroredAccess = (Mirrored<AuthorizationRole>, Mirrored<AuthorizationRoleBinding>, Held);

/// Starts the controllers of roles and of their bindings, which the mirror has; without a mirror, the resources in the
/// cluster decide.
///
/// # Errors
/// A metric's name is taken.
pub fn control_access(
    settings: RbacSettings,
    mirrored: Option<MirroredAccess>,
    namespaces: Cache<Metadata<Namespace>>,
    role: &mut Role<'_>,
) -> Result<(), MetricsError> {
    let rbac = Rbac::start(settings, mirrored, namespaces, role);
    authorization_role::start(&rbac, role)?;
    authorization_role_binding::start(&rbac, role)
}

/// Starts the controllers of the labels of Nodes, with a cache of their own and without a mirror: the resources in the
/// cluster decide.
///
/// # Errors
/// A metric's name is taken.
pub fn label_nodes(node_pools: NodePoolSource, role: &mut Role<'_>) -> Result<(), MetricsError> {
    let nodes = cache_nodes(&role.clients.for_controller("caches", DEFAULT_IN_FLIGHT), role);
    let held = Held::nodes(role.context.kit.clock.clone());
    label_cached(nodes, (node_pools, held), None, role)
}

/// Packed: thousands are held, and a pass reads one.
fn cache_nodes(reader: &kube::Client, role: &mut Role<'_>) -> Cache<Node> {
    let nodes = Cache::<Node>::all(reader.clone()).packed();
    nodes.start(role.tasks, &role.context.kit)
}

/// `mirrored` are the labels of the cluster and those of node pools.
fn label_cached(
    nodes: Cache<Node>,
    (node_pools, held): (NodePoolSource, Held),
    mirrored: Option<(Mirrored<ClusterLabel>, Mirrored<NodePoolLabel>)>,
    role: &mut Role<'_>,
) -> Result<(), MetricsError> {
    let (context, clients, tasks) = (&role.context, &role.clients, &mut *role.tasks);
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let (of_cluster, of_pools) = mirrored.unzip();
    let cluster_labels = Labels::<ClusterLabel>::start(of_cluster, &reader, &context.kit, tasks);
    let node_pool_labels = Labels::<NodePoolLabel>::start(of_pools, &reader, &context.kit, tasks);
    let (cluster_labels, node_pool_labels) = (Arc::new(cluster_labels), Arc::new(node_pool_labels));
    labels::start(&cluster_labels, context, tasks);
    labels::start(&node_pool_labels, context, tasks);
    let client = clients.for_controller("node-labels", MOST_IN_FLIGHT);
    let members = PoolMembers::default();
    let NodePoolSource { setting, cloud } = node_pools;
    if let Some(cloud) = cloud.filter(|_| setting != NodePools::Label) {
        sync::start(cloud, setting, &nodes, (members.clone(), held), role)?;
    }
    let parts = NodeLabelParts {
        nodes,
        cluster_labels,
        node_pool_labels,
        setting,
        members,
        client,
    };
    node_labels::start(parts, &role.context, role.tasks)
}

/// The parts that the controllers share.
struct Shared<'a> {
    clients: &'a Clients,
    reader: kube::Client,
    namespaces: Cache<Metadata<Namespace>>,
    /// The cloud's lists of registries; None without a mirror.
    registry_lists: Option<RegistryLists>,
    context: &'a ControllerContext,
}
