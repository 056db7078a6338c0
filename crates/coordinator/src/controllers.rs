//! The controllers of the role in one table, and the caches that they share.

mod containership;
mod registry;

use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use tidewaiter_cloud::client::{Client, Cluster};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{Cache, ControllerContext, Metadata};

pub use registry::RegistrySettings;

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

/// Why a controller cannot start.
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
/// | containership | Namespaces, service accounts, Registries | the service account `containership` in each namespace; `imagePullSecrets` of it and of the accounts that the settings name |
/// | registry | Registries, Secrets of `containership-core` | the pull secret of each Registry in `containership-core` |
/// | pullsecret | Namespaces, pull secrets, Registries | the pull secret of each Registry in each namespace |
/// | reports | Nodes, the nodes of the cloud | the status of the nodes and of the cluster, in the cloud |
/// | terminate | the request to remove everything | deletes what its table lists |
///
/// # Errors
/// [`StartError`]; nothing was written.
pub fn start(cloud: &Cloud, registries: &RegistrySettings, port: Port, mut role: Role<'_>) -> Result<(), StartError> {
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
    let shelf = registry::start(registries, &shared, tasks)?;
    containership::start(registries, &shared, shelf, tasks);
    let Cloud { client, cluster, .. } = cloud;
    let changes = Changes::start(client.clone(), *cluster, context.leadership.clone(), tasks);
    reports::start(cloud, &changes, reader, &context, tasks);
    Ok(())
}

/// What the controllers share.
struct Shared<'a> {
    clients: &'a Clients,
    reader: kube::Client,
    namespaces: Cache<Metadata<Namespace>>,
    context: &'a ControllerContext,
}
