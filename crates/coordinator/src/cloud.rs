//! The cloud of the role.

use std::time::Duration;

use tidewaiter_cloud::client::{Client, Cluster};

/// The cloud of the role, and this cluster in it.
#[derive(Clone, Debug)]
pub struct Cloud {
    /// The client, with the API key of the cluster.
    pub client: Client,
    /// This cluster.
    pub cluster: Cluster,
    /// The sync interval: how often the cloud is polled.
    pub interval: Duration,
}
