//! The controllers of the role in one table, and the caches that they share.

mod containership;

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_cloud::client::{Client, Cluster};
use tidewaiter_kit::client::{DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, ControllerContext, Metadata};

use crate::changes::Changes;
use crate::endpoints::{self, Port};
use crate::reports;
use crate::terminate::Termination;

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

/// Starts every controller of the role. They write when this replica leads, and while everything is to be removed, only `terminate` does.
///
/// | controller | reads | writes |
/// | --- | --- | --- |
/// | containership | Namespaces | the service account `containership` in each of them |
/// | reports | Nodes, the nodes of the cloud | the status of the nodes and of the cluster, in the cloud |
/// | terminate | the request to remove everything | deletes what its table lists |
///
/// # Errors
/// If the certificate of `port` cannot be used.
pub fn start(cloud: &Cloud, port: Port, mut role: Role<'_>) -> Result<(), rustls::Error> {
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
    let reader = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let namespaces = Cache::<Metadata<Namespace>>::metadata(reader.clone()).start(tasks, kit);
    let writer = clients.for_controller("containership", MOST_IN_FLIGHT);
    containership::start(&namespaces, &reader, writer, &context, tasks);
    let Cloud { client, cluster, .. } = cloud;
    let changes = Changes::start(client.clone(), *cluster, context.leadership.clone(), tasks);
    reports::start(cloud, &changes, reader, &context, tasks);
    Ok(())
}
