//! A cluster on Hetzner Cloud.

use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::FakeHetzner;
use tidewaiter_testkit::fake_hetzner::{FakeServer, TOKEN, server};

use super::{Machine, Machines, controller, nodes_get_what_the_cloud_vouches_for, world};
use crate::state_store::s3::S3;
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

/// kOps keeps the state of such a cluster in a store that speaks S3, and sets these variables in its container.
#[tokio::test]
async fn the_state_store_is_reached_with_the_variables_that_kops_sets() {
    let mut world = world().await;
    let s3 = S3::start(world.store.is_served_as("s3://state/test.example.com")).await;
    let hetzner = FakeHetzner::start().await;
    let worker = server(5, "nodes-abcd").ip("10.0.0.5").kops(CLUSTER, "nodes");
    let machine = Machine::from(&worker);
    hetzner.launch([worker]);
    let mut environment = hetzner.environment();
    environment.extend([
        ("TIDEWAITER_HETZNER_ENDPOINT", hetzner.endpoint()),
        ("S3_ENDPOINT", s3.endpoint().to_owned()),
        ("S3_REGION", "hel1".to_owned()),
        ("S3_ACCESS_KEY_ID", "key-of-kops".to_owned()),
        ("S3_SECRET_ACCESS_KEY", "secret-of-kops".to_owned()),
        ("LINODE_TOKEN", "another-secret".to_owned()),
    ]);
    let controller = controller(&world, "hetzner", &environment).await;
    machine.registers_as(&world, &machine.node).await;
    let expected = [
        ("kops.k8s.io/instancegroup", "nodes"),
        ("node-role.kubernetes.io/node", ""),
        ("team", "red"),
    ];
    world.has_labels(&machine.node, &expected).await;
    assert_eq!(s3.signers(), ["key-of-kops in hel1"]);
    controller
        .logs("LINODE_TOKEN has no effect: Tidewaiter does not call Linode")
        .await;
    let log = controller.process.log();
    for word in ["S3_", "secret-of-kops", "another-secret"] {
        assert!(!log.contains(word), "{word}, in {log}");
    }
}

/// kOps' `hcloud-csi-controller` may run on a worker, and its token may relabel servers.
#[tokio::test]
async fn a_server_that_is_relabelled_stays_in_the_group_for_which_its_node_was_verified() {
    let world = world().await;
    let hetzner = FakeHetzner::start().await;
    let worker = server(5, "nodes-abcd").ip("10.0.0.5").kops(CLUSTER, "nodes");
    let relabelled = worker.clone().kops(CLUSTER, "masters");
    let machine = Machine::from(&worker);
    let name = machine.node.as_str();
    hetzner.launch([worker.clone()]);
    let mut environment = hetzner.environment();
    environment.push(("TIDEWAITER_HETZNER_ENDPOINT", hetzner.endpoint()));
    environment.push(("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "1".to_owned()));
    let first = controller(&world, "hetzner", &environment).await;
    machine.registers_as(&world, name).await;
    let strength = "every API token with write permission can change";
    world.says(name, "Verified", True, "Proven", strength).await;
    let given = [
        ("kops.k8s.io/instancegroup", "nodes"),
        ("node-role.kubernetes.io/node", ""),
        ("team", "red"),
    ];
    world.has_labels(name, &given).await;

    let words =
        "names group masters, but its Node was verified for group nodes … never becomes one of the control plane";
    hetzner.launch([relabelled.clone()]);
    world.says(name, "Verified", False, "GroupChanged", words).await;
    world.tells(name, "GroupChanged", words).await;
    first.counts_refusal("GroupChanged", false).await;
    // Nor after another refusal in between, nor for another process.
    hetzner.launch([relabelled.clone().status("off")]);
    world.is_verified(name, False, "NotRunning").await;
    hetzner.launch([relabelled]);
    world.is_verified(name, False, "GroupChanged").await;
    first.stops().await;
    let second = controller(&world, "hetzner", &environment).await;
    second.counts_refusal("GroupChanged", false).await;
    world.has_labels(name, &given).await;

    hetzner.launch([worker]);
    world.is_verified(name, True, "Proven").await;
    world.has_labels(name, &given).await;
}

/// Hetzner Cloud has no groups, and no number is missing for that.
#[tokio::test]
async fn the_health_of_every_group_is_known() {
    let world = world().await;
    let hetzner = FakeHetzner::start().await;
    let worker = server(5, "nodes-abcd").ip("10.0.0.5").kops(CLUSTER, "nodes");
    let outdated = server(6, "nodes-efgh").ip("10.0.0.6").kops(CLUSTER, "nodes");
    let master = server(2, "masters-abcd").ip("10.0.0.2").kops(CLUSTER, "masters");
    let machines = [&worker, &master].map(Machine::from);
    hetzner.launch([worker, outdated.label("kops.k8s.io/needs-update", ""), master]);
    let mut environment = hetzner.environment();
    environment.push(("TIDEWAITER_HETZNER_ENDPOINT", hetzner.endpoint()));
    let controller = controller(&world, "hetzner", &environment).await;
    for machine in machines {
        machine.registers_as(&world, &machine.node).await;
    }
    controller.has_gauge("kops_node_ready", Some(2.0)).await;
    let page = controller.scrape().await;
    // The sizes are those of the InstanceGroup.
    for (gauge, nodes, masters) in [
        ("current_instances", 2, 1),
        ("ready_nodes", 1, 1),
        ("outdated_instances", 1, 0),
        ("target_instances", 3, 3),
        ("min_instances", 3, 3),
        ("max_instances", 3, 3),
    ] {
        for (group, value) in [("nodes", nodes), ("masters", masters)] {
            let labels = format!("cluster_name=\"{CLUSTER}\",instance_group=\"{group}\"");
            let line = format!("tidewaiter_instance_group_{gauge}{{{labels}}} {value}\n");
            assert!(page.contains(&line), "{line}: {page}");
        }
    }
    for part in ["InstanceGroups", "cloud", "Nodes", "NodeIdentities", "Pods", "dns"] {
        let line = format!("tidewaiter_cluster_observed{{cluster_name=\"{CLUSTER}\",part=\"{part}\"}} 1\n");
        assert!(page.contains(&line), "{line}: {page}");
    }
    for gauge in [
        "kops_node_notReady",
        "kops_pod_missing",
        "kops_pod_notReady",
        "kops_pod_pending",
        "kops_pod_unknown",
    ] {
        assert!(page.contains(&format!("\n{gauge}{{")), "{gauge}: {page}");
    }
}
