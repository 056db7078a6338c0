//! The coordinator and the agents: how soon a change in the cloud takes effect, service accounts and pull secrets in
//! many namespaces, roles and bindings, plugins, upgrades, logins, and what they cost at rest.

mod access;
mod agent;
mod agents;
mod applies;
mod bare;
mod bed;
mod latency;
mod load;
mod namespaces;
mod plugins;
mod rest;
mod tenant;
mod upgrades;

use std::time::{Duration, Instant};

pub use access::measure as access;
pub use agent::measure as agent;
pub use latency::measure as latency;
pub use namespaces::measure as namespaces;
pub use plugins::measure as plugins;
pub use rest::measure as rest;
pub use tenant::measure as tenant;
pub use upgrades::measure as upgrades;

/// How large the clusters of the coordinator are, and how long it is observed.
#[derive(Debug, clap::Args)]
pub struct Sizes {
    /// How many namespaces the coordinator's big cluster has
    #[arg(long, default_value_t = 10_000)]
    namespaces: usize,

    /// How many clusters are connected to the cloud beside the coordinator's
    #[arg(long, default_value_t = 999)]
    streams: usize,

    /// How often each kind of change is made in the cloud
    #[arg(long, default_value_t = 200)]
    rounds: usize,

    /// How often a permission is given and taken away in the cloud
    #[arg(long, default_value_t = 30)]
    permissions: usize,

    /// How many nodes are upgraded
    #[arg(long, default_value_t = 500)]
    upgraded: usize,

    /// How many objects with the label of a plugin a tenant has
    #[arg(long, default_value_t = 100_000)]
    strangers: usize,

    /// How many agents watch the Users
    #[arg(long, default_value_t = 5_000)]
    agents: usize,

    /// How long the coordinator is observed at rest
    #[arg(long, default_value_t = 300)]
    rest_seconds: u32,
}

#[expect(clippy::disallowed_methods, reason = "a run is measured in real time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::disallowed_methods, reason = "a run takes its time")]
async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}
