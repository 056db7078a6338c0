//! A cluster on Hetzner Cloud.

use tidewaiter_testkit::FakeHetzner;
use tidewaiter_testkit::fake_hetzner::{FakeServer, TOKEN, server};

use super::{Machine, Machines, controller, nodes_get_what_the_cloud_vouches_for, world};
use crate::world::CLUSTER;

impl From<&FakeServer> for Machine {
    fn from(server: &FakeServer) -> Self {
        Self {
            node: server.node_name().to_owned(),
            provider_id: server.provider_id(),
            address: server.address().to_owned(),
            instance: server.id().to_string(),
        }
    }
}

#[tokio::test]
async fn nodes_get_the_labels_of_the_group_that_their_servers_labels_name() {
    let world = world().await;
    let hetzner = FakeHetzner::start().await;
    let worker = server(5, "nodes-abcd").ip("10.0.0.5").kops(CLUSTER, "nodes");
    let master = server(2, "masters-abcd").ip("10.0.0.2").kops(CLUSTER, "masters");
    let thief = server(6, "nodes-evil")
        .ip("10.0.0.6")
        .kops(CLUSTER, "masters")
        .without_label("kops.k8s.io/instance-group");
    let machines = Machines {
        worker: Machine::from(&worker),
        master: Machine::from(&master),
        thief: Machine::from(&thief),
    };
    hetzner.launch([worker, master, thief]);
    let mut environment = hetzner.environment();
    environment.push(("TIDEWAITER_HETZNER_ENDPOINT", hetzner.endpoint()));
    let controller = controller(&world, "hetzner", &environment).await;
    nodes_get_what_the_cloud_vouches_for(&world, &controller, &machines).await;
    assert!(!controller.process.log().contains(TOKEN), "the token is never logged");
}
