//! Somebody holds the credentials of a node's kubelet and claims to be another instance: whatever a kubelet can write, it gets
//! nothing by it, nobody loses anything by it, and everybody can see it.

use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_api::names::UNIDENTIFIED_TAINT;
use tidewaiter_api::{NodeIdentity, NodeIdentityStatus};
use tidewaiter_testkit::builders::node;
use tidewaiter_testkit::fake_ec2::FakeInstance;
use tidewaiter_testkit::{Identity, Kubelet};

use crate::world::{Controller, Labels, World};

const OF_WORKER: [(&str, &str); 3] = [
    ("kops.k8s.io/instancegroup", "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("team", "red"),
];
const OF_MASTER: [(&str, &str); 5] = [
    ("kops.k8s.io/instancegroup", "masters"),
    ("kops.k8s.io/kops-controller-pki", ""),
    ("node-role.kubernetes.io/control-plane", ""),
    ("node.kubernetes.io/exclude-from-external-load-balancers", ""),
    ("vault", "open"),
];
const WHO: &str = "Find out who registered this Node";

#[tokio::test]
async fn a_kubelet_that_claims_another_instance_gets_nothing() {
    let world = World::start().await;
    world.group("nodes", &[("team", "red")]);
    world.group_as("masters", "Master", &[("vault", "open")]);
    let controller = world.controller().await;
    let master = world.join(1, "masters").await;
    world.has_labels(master.name(), &OF_MASTER).await;
    let master = FakeInstance::numbered(1);

    let robbed = claims_an_instance_whose_node_is_there(&world, &controller, &master).await;
    claims_an_instance_without_a_node(&world).await;
    controller.counts("forged", 2).await;
    controller.counts_refusal("NameMismatch", true).await;
    writes_no_record(&world, &robbed).await;

    // The master lost nothing, and is not even looked at as a rival.
    world.has_labels(master.node_name(), &OF_MASTER).await;
    world.is_verified(master.node_name(), True, "Proven").await;
    assert_eq!(world.patches(master.node_name()).await, 1);
    assert_eq!(world.events(master.node_name()).await, []);

    lies_about_itself(&world, &controller).await;
    controller.counts("forged", 3).await;

    // The honest Node of that name is another one, and has what is its own.
    let delete = DeleteParams::default();
    world.nodes().delete(robbed.name(), &delete).await.unwrap();
    controller.counts("forged", 2).await;
    robbed
        .create(&World::node_of(&FakeInstance::numbered(3)).build())
        .await
        .unwrap();
    world.has_labels(robbed.name(), &OF_WORKER).await;
    world.is_verified(robbed.name(), True, "Proven").await;
}

/// A worker that was honest, and then registers again as the master, whose own Node is there.
async fn claims_an_instance_whose_node_is_there(
    world: &World,
    controller: &Controller,
    master: &FakeInstance,
) -> Kubelet {
    let worker = world.join(3, "nodes").await;
    let name = worker.name();
    world.has_labels(name, &OF_WORKER).await;
    let patches = world.patches(name).await;
    world.nodes().delete(name, &DeleteParams::default()).await.unwrap();
    controller.counts("verified", 1).await;

    // It cannot be the master's Node, nor say that it is of the control plane.
    let forged = node(name)
        .provider_id(&master.provider_id())
        .internal_ip(master.address())
        .taint(UNIDENTIFIED_TAINT, "NoSchedule");
    let of_the_master = node(master.node_name()).provider_id(&master.provider_id()).build();
    assert_eq!(refusal(worker.create(&of_the_master).await), 403);
    for (label, value) in &OF_MASTER[..3] {
        assert_eq!(
            refusal(worker.create(&forged.clone().label(label, value).build()).await),
            403,
            "{label}"
        );
    }
    // But it can claim the master's instance.
    worker.create(&forged.label("looks", "right").build()).await.unwrap();
    let words = format!(
        "node {name} is not instance {} … {} … {WHO}",
        master.id(),
        master.node_name()
    );
    world.says(name, "Verified", False, "NameMismatch", &words).await;
    world.tells(name, "NameMismatch", &words).await;

    // Everything that it can write to look like the master, under our own field manager, too.
    let ours = PatchParams {
        field_manager: Some("tidewaiter/node".to_owned()),
        ..PatchParams::default()
    };
    let looks = json!({"metadata": {
        "annotations": {"kops.k8s.io/instancegroup": "masters", "tidewaiter.dev/verified": "true"},
        "labels": {"group": "masters", "looks": "better"},
    }});
    worker.nodes().patch(name, &ours, &Patch::Merge(looks)).await.unwrap();
    let addresses = json!({"status": {"addresses": [
        {"type": "Hostname", "address": master.node_name()},
        {"type": "InternalDNS", "address": master.node_name()},
        {"type": "InternalIP", "address": master.address()},
    ]}});
    worker.patch_status(addresses).await.unwrap();
    assert_eq!(refusal(worker.patch(json!({"spec": {"taints": []}})).await), 403);
    world
        .patch(name, json!({"metadata": {"labels": {"seen": "yes"}}}))
        .await;
    gets_nothing(
        world,
        name,
        &[("group", "masters"), ("looks", "better"), ("seen", "yes")],
    )
    .await;
    assert!(world.is_tainted(name).await);
    assert_eq!(
        world.patches(name).await,
        patches,
        "nobody so much as tried to change it"
    );
    worker
}

/// A worker that registers without a providerID, as with an external cloud provider, and then writes another's.
async fn claims_an_instance_without_a_node(world: &World) {
    let master = world.launch(2, "masters");
    let worker = world.launch(4, "nodes");
    let name = worker.node_name();
    let kubelet = Kubelet::register(&world.cluster, &node(name).internal_ip(worker.address()).build()).await;
    let claim = json!({"spec": {"providerID": master.provider_id()}});
    kubelet.patch(claim).await.unwrap();
    let words = format!(
        "node {name} is not instance {} … {} … {WHO}",
        master.id(),
        master.node_name()
    );
    world.says(name, "Verified", False, "NameMismatch", &words).await;
    world.tells(name, "NameMismatch", &words).await;
    gets_nothing(world, name, &[]).await;
    assert_eq!(world.patches(name).await, 0);
}

/// A Node of the right name and instance that lists another's address: addresses refute, and prove nothing.
async fn lies_about_itself(world: &World, controller: &Controller) {
    let worker = world.launch(5, "nodes");
    let name = worker.node_name();
    let lies = node(name).provider_id(&worker.provider_id()).internal_ip("10.9.9.9");
    let kubelet = Kubelet::register(&world.cluster, &lies.build()).await;
    let words = format!(
        "lists the addresses 10.9.9.9, but instance {} has {} … {WHO}",
        worker.id(),
        worker.address()
    );
    world.says(name, "Verified", False, "AddressMismatch", &words).await;
    world.tells(name, "AddressMismatch", &words).await;
    controller.counts_refusal("AddressMismatch", true).await;
    gets_nothing(world, name, &[]).await;
    let honest = json!({"status": {"addresses": [{"type": "InternalIP", "address": worker.address()}]}});
    kubelet.patch_status(honest).await.unwrap();
    world.has_labels(name, &OF_WORKER).await;
    world.tells(name, "Verified", worker.id()).await;

    let worker = world.launch(6, "nodes");
    let name = worker.node_name();
    let elsewhere = worker.provider_id().replace(&zone(&worker), "us-east-1z");
    let lies = node(name).provider_id(&elsewhere).internal_ip(worker.address());
    Kubelet::register(&world.cluster, &lies.build()).await;
    let words = format!(
        "names zone us-east-1z, but instance {} is in {}",
        worker.id(),
        zone(&worker)
    );
    world.says(name, "Verified", False, "ZoneMismatch", &words).await;
    world.tells(name, "ZoneMismatch", &words).await;
    controller.counts_refusal("ZoneMismatch", true).await;
    gets_nothing(world, name, &[]).await;
}

fn zone(instance: &FakeInstance) -> String {
    instance.provider_id().split('/').nth(3).unwrap().to_owned()
}

/// What a Node is to us is not its kubelet's to write.
async fn writes_no_record(world: &World, kubelet: &Kubelet) {
    let name = kubelet.name();
    let records: Api<NodeIdentity> = Api::all(world.cluster.client(&Identity::kubelet(name)));
    let mut record = world.records().get(name).await.unwrap();
    let verified = json!({"status": {"instanceGroup": "masters"}});
    let (patch, params) = (Patch::Merge(verified), PatchParams::default());
    assert_eq!(refusal(records.patch(name, &params, &patch).await), 403);
    assert_eq!(
        refusal(records.replace(name, &PostParams::default(), &record).await),
        403
    );
    assert_eq!(refusal(records.delete(name, &DeleteParams::default()).await), 403);
    record.metadata.name = Some("another".to_owned());
    record.metadata.resource_version = None;
    assert_eq!(refusal(records.create(&PostParams::default(), &record).await), 403);
}

#[tokio::test]
async fn a_provider_id_that_is_none_never_reaches_the_cloud() {
    let world = World::start().await;
    world.group("nodes", &[]);
    let controller = world.controller().await;
    let junk = "x".repeat(10 * 1024);
    let junk_id = format!("aws:///us-east-1a/i-{junk}");
    let provider_ids = [
        junk.as_str(),
        &junk_id,
        "foo://bar",
        "gce://project/us-central1-a/instance",
        "i-0123456789abcdef0",
        "aws:///us-east-1a/i-0123",
        "aws:///us-east-1a/i-0123456789abcdef0,i-0123456789abcdef1",
        "aws:///us-east-1a/i-0123456789abcdef0\n\u{1b}[31m",
        "aws:///us-east-1a/*",
    ];
    for (number, provider_id) in provider_ids.iter().enumerate() {
        let name = format!("node-{number}");
        let forged = node(&name).provider_id(provider_id).label("mine", "yes").build();
        Kubelet::register(&world.cluster, &forged).await;
        let words = "providerID \" … Check that the cloud controller manager runs";
        world.says(&name, "Verified", False, "InvalidProviderId", words).await;
        world.tells(&name, "InvalidProviderId", words).await;
        gets_nothing(&world, &name, &[("mine", "yes")]).await;
        let record = world.records().get(&name).await.unwrap();
        let said = [&record.spec.provider_id, &record.condition("Verified").unwrap().message];
        for text in said {
            assert!(text.len() <= 512 && !text.contains(char::is_control), "{text:?}");
        }
    }
    controller
        .counts("refused", u32::try_from(provider_ids.len()).unwrap())
        .await;
    controller.counts_refusal("InvalidProviderId", false).await;
    assert_eq!(world.identity_calls(), []);

    // Nor does one that is left out, and it is nobody's fault.
    Kubelet::register(&world.cluster, &node("none").build()).await;
    Kubelet::register(&world.cluster, &node("empty").provider_id("").build()).await;
    controller.counts("waiting", 2).await;
    for name in ["none", "empty"] {
        assert_eq!(world.events(name).await, []);
        assert!(world.records().get_opt(name).await.unwrap().is_none());
    }
    assert_eq!(world.identity_calls(), []);
}

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
        gets_nothing(&world, rival, &[]).await;
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

/// The Node has only these labels. Its record names no instance, no group, no label.
async fn gets_nothing(world: &World, name: &str, own: &[(&str, &str)]) {
    let own: Labels = own
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect();
    assert_eq!(world.labels(name).await, own, "{name}");
    let uid = world.nodes().get(name).await.unwrap().metadata.uid;
    let record = world.records().get(name).await.unwrap();
    assert_eq!(Some(record.spec.node_uid.as_str()), uid.as_deref());
    let NodeIdentityStatus {
        instance,
        instance_group,
        labels,
        ..
    } = record.status.unwrap();
    assert_eq!((instance, instance_group, labels), (None, None, Vec::new()), "{name}");
}

/// The HTTP status with which the API server refused it.
fn refusal<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 200,
        Err(kube::Error::Api(status)) => status.code,
        Err(error) => panic!("{error}"),
    }
}
