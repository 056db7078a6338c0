//! The controller role as a process of the simulation: the only module that knows how the role is wired.

use std::sync::Arc;
use std::time::Duration;

use tidewaiter_controller::controllers::require_cluster;
use tidewaiter_controller::node_controller::{self, NodeControllerParts, Policy};
use tidewaiter_identity::{Lookup, LookupSettings};
use tidewaiter_kit::Cache;
use tidewaiter_kit::client::{DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::leader::Timing;
use tidewaiter_kit::tasks::TaskEnded;
use tidewaiter_kops::{Definitions, DefinitionsSettings};
use tidewaiter_testkit::sim::ApiServer;

use crate::cloud::Account;
use crate::files::Bucket;
use crate::replica::{Replica, Wiring};
use crate::truth::CLUSTER;

pub const LEASE_NAMESPACE: &str = "kube-system";
pub const LEASE: &str = "kops-controller-leader";

/// The maximum age of a cached answer of the cloud when instances change.
pub const EXPIRY: Duration = Duration::from_mins(5);
/// The interval between polls of the files.
const POLL: Duration = Duration::from_mins(1);

/// The dependencies of a replica.
#[derive(Debug)]
pub struct RoleParts {
    pub server: ApiServer,
    pub replica: Replica,
    pub account: Account,
    pub bucket: Bucket,
    pub policy: Policy,
    pub timing: Timing,
    /// The maximum age of a cached answer of the cloud.
    pub expiry: Duration,
}

/// Runs a replica until it stops.
pub async fn run(parts: RoleParts) -> Result<(), TaskEnded> {
    let RoleParts {
        server,
        replica,
        account,
        bucket,
        policy,
        timing,
        expiry,
    } = parts;
    let lease = (LEASE_NAMESPACE, LEASE);
    let mut role = Wiring::new(&server, &replica, "tidewaiter-controller", lease, timing);
    let (clock, kit) = (Arc::clone(&role.context.kit.clock), role.context.kit.clone());
    let watched = role.clients.for_controller("caches", DEFAULT_IN_FLIGHT);
    let settings = LookupSettings {
        expiry,
        ..LookupSettings::default()
    };
    let cluster = CLUSTER.parse().unwrap();
    let polled = DefinitionsSettings {
        poll: POLL,
        ..DefinitionsSettings::default()
    };
    let definitions = Definitions::new(Arc::new(bucket), cluster, polled, Arc::clone(&clock), &kit.metrics).unwrap();
    require_cluster(&definitions, || true, &kit);
    let parts = NodeControllerParts {
        nodes: Cache::all(watched.clone()).start(&mut role.tasks, &kit),
        records: Cache::all(watched).start(&mut role.tasks, &kit),
        client: role.clients.for_controller("node", MOST_IN_FLIGHT),
        identities: Arc::new(Lookup::new(Arc::new(account), clock, settings)),
        definitions,
        policy,
    };
    node_controller::start(parts, &role.context, &mut role.tasks).unwrap();
    role.run().await
}
