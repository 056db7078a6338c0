//! The start of the role.

use tidewaiter_kit::role::Role;

use crate::changes::Changes;
use crate::cloud::Cloud;
use crate::controllers::{self, Decisions, StartError};
use crate::decisions as cloud_decisions;
use crate::endpoints::{self, Port};
use crate::mirror::{self, MirrorSettings};
use crate::reports;
use crate::terminate::Termination;

/// Starts every controller of the role. They write when this replica leads, and while everything is to be removed, only
/// `terminate` does.
///
/// The controllers, each with what it reads and what it writes:
/// - sync-…, cloud-sync: reads what the cloud lists; writes the mirrored kinds ([`mirror::start`] lists them), and
///   `CloudSync`.
/// - user-end, role-binding-end: read Users and `AuthorizationRoleBinding`s; write nothing: they report ends of access.
/// - containership: reads Namespaces, service accounts, Registries; writes the service account `containership` in each
///   namespace, and `imagePullSecrets` of it and of the accounts that the settings name.
/// - registry: reads Registries, Secrets of `containership-core`; writes the pull secret of each Registry in
///   `containership-core`.
/// - pullsecret: reads Namespaces, pull secrets, Registries; writes the pull secret of each Registry in each namespace.
/// - unlabelled-pullsecret: reads Registries, pull secrets whose labels somebody took off; deletes those of registries
///   that are gone.
/// - authorization-role: reads `AuthorizationRole`s, `AuthorizationRoleBinding`s; writes `ClusterRole`s.
/// - authorization-role-binding: reads `AuthorizationRoleBinding`s, `AuthorizationRole`s, `ClusterRole`s, Namespaces;
///   writes `ClusterRoleBinding`s, `RoleBinding`s.
/// - plugin: reads Plugins, their inventories, the manifests in the cloud, the objects of plugins; writes those
///   objects, the inventories, the status of Plugins.
/// - cluster-label, node-pool-label: reads `ClusterLabel`s, `NodePoolLabel`s; writes nothing: they report on those that
///   do not count.
/// - node-labels: reads Nodes, `ClusterLabel`s, `NodePoolLabel`s, the nodes of the cloud; writes labels of Nodes.
/// - upgrade: reads `ClusterUpgrade`s, Nodes, the pods of the control plane; writes the progress and the status of
///   `ClusterUpgrade`s, cordons Nodes and evicts pods.
/// - node-upgrade: reads the progress of `ClusterUpgrade`s; writes a `NodeUpgrade` for each node in progress.
/// - reports: reads Nodes, the nodes of the cloud; writes the status of the nodes and of the cluster, in the cloud.
/// - report of the cluster: reads the state of the sync loops, Plugins and their diffs, Nodes, `NodeReport`s; writes
///   the report of the cluster, in the cloud.
/// - decisions, with `acceptReleasesFromCloud`: reads releases and approvals in the cloud; writes the annotations of
///   `CloudSync` and of Plugins that release and approve.
/// - reports of upgrades: reads the `ClusterUpgrade`s of the mirror; writes the progress of the upgrades, in the cloud.
/// - terminate: reads the request to remove everything; deletes what its table lists.
///
/// # Errors
/// [`StartError`]; nothing was written.
pub fn start(cloud: &Cloud, decisions: &Decisions, port: Port, mut role: Role<'_>) -> Result<(), StartError> {
    let (termination, pause) = Termination::start(&decisions.plugins.accounts, &mut role);
    endpoints::start(port, cloud, termination, decisions.upgrades, &mut role)?;
    role.context.pause = pause;
    let leadership = role.context.leadership.clone();
    let metrics = &role.context.kit.metrics;
    let changes = Changes::start(cloud.client.clone(), cloud.cluster, leadership, metrics, role.tasks)?;
    let mirrored = MirrorSettings {
        cloud: cloud.clone(),
        mass_deletion: decisions.mass_deletion,
        registry_credentials: decisions.registries.registry_credentials,
        upgrades: decisions.upgrades,
    };
    let lists = mirror::start(mirrored, &changes, &mut role)?;
    let (upgrades, state, plugins) = (lists.upgrades.clone(), lists.state.clone(), lists.plugins.cache.clone());
    let nodes = controllers::start(cloud, decisions, lists, &changes, &mut role)?;
    reports::start(cloud, &changes, &nodes, &mut role);
    reports::upgrades::start(cloud, upgrades, &mut role);
    let accepts = decisions.accept_releases_from_cloud;
    let reported = (state, cloud_decisions::Failures::default());
    reports::cluster_report::start(cloud, (reported.clone(), accepts), plugins.clone(), &nodes, &mut role);
    if accepts {
        cloud_decisions::start(cloud, &changes, reported, plugins, &mut role);
    }
    Ok(())
}
