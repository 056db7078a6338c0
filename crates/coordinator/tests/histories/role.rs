//! The mirror and the label controllers as a process of the simulation: the only module that knows how they are wired.

use std::time::Duration;

use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_cloud::client::{Client, ClientSettings, Cluster};
use tidewaiter_cloud::models::Kind;
use tidewaiter_coordinator::changes::Changes;
use tidewaiter_coordinator::controllers::{self, NodePoolSource, Upgrades};
use tidewaiter_coordinator::mirror::{self, MassDeletion, MirrorSettings, RegistryCredentialsIn};
use tidewaiter_coordinator::node_pools::NodePools;
use tidewaiter_coordinator::node_pools::sync::CloudNodes;
use tidewaiter_kit::SharedClock;
use tidewaiter_kit::leader::Timing;
use tidewaiter_kit::role::Role;
use tidewaiter_kit::tasks::TaskEnded;
use tidewaiter_testkit::sim::{ApiServer, Process};

use crate::cloud::Cloud;
use crate::objects::{CLUSTER, ORGANIZATION};
use crate::replica::{Replica, Wiring};

pub const LEASE: &str = "tidewaiter-coordinator";

/// The sync interval: the default.
pub const INTERVAL: Duration = Duration::from_secs(30);

/// The dependencies of a replica.
#[derive(Debug)]
pub struct RoleParts {
    pub server: ApiServer,
    pub replica: Replica,
    pub cloud: Cloud,
    pub timing: Timing,
    pub mass_deletion: MassDeletion,
}

/// Runs a replica until it stops.
pub async fn run(parts: RoleParts) -> Result<(), TaskEnded> {
    let RoleParts {
        server,
        replica,
        cloud,
        timing,
        mass_deletion,
    } = parts;
    let lease = (CONTAINERSHIP_NAMESPACE, LEASE);
    let mut role = Wiring::new(&server, &replica, "tidewaiter-coordinator", lease, timing);
    let cluster = Cluster {
        organization: ORGANIZATION.parse().unwrap(),
        id: CLUSTER.parse().unwrap(),
    };
    let client = client(&replica.process, cloud, role.context.kit.clock.clone());
    let leadership = role.context.leadership.clone();
    let changes = Changes::start(
        client.clone(),
        cluster,
        leadership,
        &role.context.kit.metrics,
        &mut role.tasks,
    )
    .unwrap();
    let cloud = tidewaiter_coordinator::Cloud {
        client,
        cluster,
        interval: INTERVAL,
    };
    let settings = MirrorSettings {
        cloud: cloud.clone(),
        mass_deletion,
        registry_credentials: RegistryCredentialsIn::Secret,
        upgrades: Upgrades::default(),
    };
    let mut started = Role {
        context: role.context.clone(),
        clients: role.clients.clone(),
        unfenced: role.clients.clone(),
        tasks: &mut role.tasks,
    };
    mirror::start(settings, &changes, &mut started).unwrap();
    let node_pools = NodePoolSource {
        setting: NodePools::CloudThenLabel,
        cloud: Some(CloudNodes {
            cloud,
            asked: changes.of(&[Kind::Node, Kind::NodePool]),
        }),
    };
    controllers::label_nodes(node_pools, &mut started).unwrap();
    role.run().await
}

/// The client of the released coordinator, with its default limits.
fn client(process: &Process, cloud: Cloud, clock: SharedClock) -> Client {
    let mut settings = ClientSettings::new("http://127.0.0.1:1".parse().unwrap());
    settings.token = Some("twk_0123456789abcdef_hunter2hunter2".parse().unwrap());
    assert_eq!(settings.sync_interval, INTERVAL);
    let process = process.clone();
    let answer = move |request| cloud.clone().answer(process.clone(), request);
    Client::new(&settings, clock).unwrap().over(answer)
}
