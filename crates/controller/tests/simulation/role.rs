//! The controller role as a process of the simulation: the only module that knows how the role is wired.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tidewaiter_controller::controllers::require_cluster;
use tidewaiter_controller::node_controller::{self, NodeControllerParts, Policy};
use tidewaiter_identity::{Lookup, LookupSettings};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT, MOST_IN_FLIGHT};
use tidewaiter_kit::events::Reporter;
use tidewaiter_kit::leader::{Elector, LeaseSettings, Timing};
use tidewaiter_kit::tasks::TaskEnded;
use tidewaiter_kit::{
    Cache, Clock, ControllerContext, Events, Kit, Leadership, ManualClock, Metrics, Pause, SharedClock, Tasks,
};
use tidewaiter_kops::{Definitions, DefinitionsSettings};
use tidewaiter_testkit::sim::{ApiServer, Process};
use tokio_util::sync::CancellationToken;

use crate::cloud::Account;
use crate::files::Bucket;
use crate::truth::CLUSTER;
use crate::world::sleep;

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
    pub process: Process,
    pub account: Account,
    pub bucket: Bucket,
    pub policy: Policy,
    pub timing: Timing,
    /// The maximum age of a cached answer of the cloud.
    pub expiry: Duration,
    /// Stops the replica, as SIGTERM does.
    pub stop: CancellationToken,
    /// Filled with the metrics of the replica.
    pub metrics: Arc<OnceLock<Metrics>>,
}

/// Runs a replica until it stops.
pub async fn run(parts: RoleParts) -> Result<(), TaskEnded> {
    let RoleParts {
        server,
        process,
        account,
        bucket,
        policy,
        timing,
        expiry,
        stop,
        metrics,
    } = parts;
    let clock: SharedClock = Arc::new(ProcessClock {
        server: server.clone(),
        process: process.clone(),
    });
    let kit = Kit::new(Arc::clone(&clock)).unwrap();
    metrics.set(kit.metrics.clone()).unwrap();
    let lease = LeaseSettings {
        namespace: LEASE_NAMESPACE.to_owned(),
        name: LEASE.to_owned(),
        identity: process.name().to_owned(),
        timing,
    };
    let connect = |leadership: &Leadership| Clients::over(server.connect(&process), leadership, &kit);
    let connect_elector = |window: &Leadership| connect(window).for_controller("leader-election", DEFAULT_IN_FLIGHT);
    let (elector, leadership) = Elector::over(connect_elector, lease, &kit);
    let clients = connect(&leadership);
    let reporter = Reporter {
        controller: "tidewaiter-controller".to_owned(),
        instance: process.name().to_owned(),
    };
    let mut tasks = Tasks::new(Arc::clone(&clock));
    let shutdown = tasks.shutdown_token();
    let context = ControllerContext {
        kit: kit.clone(),
        leadership,
        events: Events::start(clients.for_events(), Arc::clone(&clock), reporter, &mut tasks),
        pause: Pause::never(),
        shutdown: shutdown.clone(),
    };
    let watched = clients.for_controller("caches", DEFAULT_IN_FLIGHT);
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
    require_cluster(&definitions, &kit);
    let parts = NodeControllerParts {
        nodes: Cache::all(watched.clone()).start(&mut tasks, &kit),
        records: Cache::all(watched).start(&mut tasks, &kit),
        client: clients.for_controller("node", MOST_IN_FLIGHT),
        identities: Arc::new(Lookup::new(Arc::new(account), clock, settings)),
        definitions,
        policy,
    };
    node_controller::start(parts, &context, &mut tasks).unwrap();
    tasks.spawn("leader-election", elector.run(shutdown));
    let stopped = async move {
        stop.cancelled().await;
        "SIGTERM"
    };
    tasks.run_until(stopped).await
}

/// The clock of one process: while the process is stopped, no timer fires.
#[derive(Debug)]
struct ProcessClock {
    server: ApiServer,
    process: Process,
}

impl Clock for ProcessClock {
    fn now(&self) -> Timestamp {
        Timestamp::UNIX_EPOCH.saturating_add(self.server.elapsed()).unwrap()
    }

    fn monotonic(&self) -> Duration {
        ManualClock::ORIGIN + self.server.elapsed()
    }

    fn sleep(&self, duration: Duration) -> BoxFuture<'static, ()> {
        let process = self.process.clone();
        let due = sleep(duration);
        async move {
            due.await;
            process.running().await;
        }
        .boxed()
    }
}
