//! `nodeNames`: in a cluster with node names of its own (`warn`), a Node is believed as long as nobody else claims its
//! instance; on EC2, one scheme of names proves.

use kube::api::DeleteParams;
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::Kubelet;
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::fake_ec2::FakeInstance;

use crate::world::{Labels, World};

const OF_WORKER: [(&str, &str); 3] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];

#[tokio::test]
async fn of_two_nodes_that_claim_one_instance_neither_is_believed_when_names_prove_nothing() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    let controller = world.controller_with(&[("TIDEWAITER_NODE_NAMES", "warn")]).await;
    let instance = world.launch(1, "nodes");
    let claim = |name: &str| {
        node(name)
            .provider_id(&instance.provider_id())
            .internal_ip(instance.address())
            .build()
    };
    Kubelet::register(&world.cluster, &claim("worker-one")).await;
    world.has_labels("worker-one", &OF_WORKER).await;
    let words = format!("node worker-one has none of the names of instance {}", instance.id());
    world
        .says("worker-one", "Verified", True, "NameNotEnforced", &words)
        .await;
    world.tells("worker-one", "NameNotEnforced", &words).await;

    for rival in ["evil", instance.node_name()] {
        Kubelet::register(&world.cluster, &claim(rival)).await;
        for (name, other) in [("worker-one", rival), (rival, "worker-one")] {
            let words = format!(
                "instance {} is also claimed by {other} … delete the other",
                instance.id()
            );
            world.says(name, "Verified", False, "Duplicate", &words).await;
            world.tells(name, "Duplicate", &words).await;
        }
        controller.counts("refused", 2).await;
        controller.counts_refusal("Duplicate", false).await;
        gets_nothing(&world, rival).await;
        world.has_labels("worker-one", &OF_WORKER).await;
        assert_eq!(world.patches("worker-one").await, 1);

        world.nodes().delete(rival, &DeleteParams::default()).await.unwrap();
        world.is_verified("worker-one", True, "NameNotEnforced").await;
        world.tells("worker-one", "Verified", instance.id()).await;
        controller.counts("verified", 1).await;
    }

    // With a name of its own or not, a Node that nobody else claims to be is taken for it.
    let kubelet = world.join(2, "nodes").await;
    world.is_verified(kubelet.name(), True, "Proven").await;
}

/// A control plane has the address of a worker that is gone, and so the name for which that worker's certificate is
/// still valid.
#[tokio::test]
async fn a_name_of_the_other_scheme_is_refused() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    world.group_as("masters", "Master", &[]);
    let _controller = world.controller_with(&[("TIDEWAITER_NODE_NAMES", "instance-id")]).await;
    let claim = |name: &str, of: &FakeInstance| {
        let node = node(name).provider_id(&of.provider_id()).internal_ip(of.address());
        node.build()
    };
    let worker = world.launch(1, "nodes");
    Kubelet::register(&world.cluster, &claim(worker.id(), &worker)).await;
    world.has_labels(worker.id(), &OF_WORKER).await;

    let master = world.launch(2, "masters");
    let recycled = master.node_name();
    Kubelet::register(&world.cluster, &claim(recycled, &master)).await;
    let words = "the Nodes of this cluster have the ids of their instances … the certificate of an earlier instance";
    world.says(recycled, "Verified", False, "NameScheme", words).await;
    world.tells(recycled, "NameScheme", words).await;
    gets_nothing(&world, recycled).await;
    Kubelet::register(&world.cluster, &claim(master.id(), &master)).await;
    world.is_verified(master.id(), True, "Proven").await;
}

/// The Node has no labels. Its record names no instance, no group, no label.
async fn gets_nothing(world: &World, name: &str) {
    assert_eq!(world.labels(name).await, Labels::new(), "{name}");
    world.is_recorded_as_nobody(name).await;
}
