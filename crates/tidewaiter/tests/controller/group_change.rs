//! `onGroupChange`: an instance gets the tag of another group than the one for which its Node was verified.

use tidewaiter_api::ConditionStatus::{False, True};
use tidewaiter_testkit::Kubelet;
use tidewaiter_testkit::fake_ec2::FakeInstance;

use crate::explain::{explain, start};
use crate::world::{CLUSTER, World};

const GROUP: &str = "kops.k8s.io/instancegroup";
/// Often enough that a change in the cloud is seen at once.
const OFTEN: (&str, &str) = ("TIDEWAITER_IDENTITY_EXPIRY_SECONDS", "1");
const OF_NODES: [(&str, &str); 4] = [
    (GROUP, "nodes"),
    ("node-role.kubernetes.io/node", ""),
    ("old", "yes"),
    ("team", "red"),
];
const OF_BATCH: [(&str, &str); 3] = [
    (GROUP, "batch"),
    ("node-role.kubernetes.io/node", ""),
    ("tier", "night"),
];

async fn joins(world: &World, number: u32, group: &str) -> FakeInstance {
    let instance = world.launch(number, group);
    Kubelet::register(&world.cluster, &World::node_of(&instance).build()).await;
    world.is_verified(instance.node_name(), True, "Proven").await;
    instance
}

fn tag(world: &World, instance: &FakeInstance, group: &str) {
    world.ec2.launch([instance.clone().tag(GROUP, group)]);
}

#[tokio::test]
async fn a_node_whose_instance_changes_its_group_keeps_what_it_has() {
    let world = start().await;
    let controller = world.controller_with(&[OFTEN]).await;
    let instance = joins(&world, 1, "nodes").await;
    let name = instance.node_name();
    world.has_labels(name, &OF_NODES).await;

    tag(&world, &instance, "batch");
    let words = "the tag of instance … names group batch, but its Node was verified for group nodes … change it back … onGroupChange: follow";
    world.says(name, "Verified", False, "GroupChanged", words).await;
    world.tells(name, "GroupChanged", words).await;
    controller.counts_refusal("GroupChanged", false).await;
    world.has_labels(name, &OF_NODES).await;
    for arguments in [&["node", name][..], &["node", name, "--from-cloud"]] {
        let output = explain(&world, arguments).await;
        let said = String::from_utf8_lossy(&output.stdout);
        let groups = "names group batch, but its Node was verified for group nodes";
        let held = format!(
            "it is held: it keeps what it has. To have a Node of the other group, replace the instance: kops delete instance {name} --yes"
        );
        for words in ["GroupChanged", "set onGroupChange: follow", groups, &held] {
            assert!(said.contains(words), "{arguments:?}: {words}: {said}");
        }
    }
    // Nor after another refusal, which leaves the group on record.
    world
        .ec2
        .launch([instance.clone().tag(GROUP, "batch").state("stopped")]);
    world.is_verified(name, False, "NotRunning").await;
    tag(&world, &instance, "batch");
    world.is_verified(name, False, "GroupChanged").await;
    world.has_labels(name, &OF_NODES).await;

    tag(&world, &instance, "nodes");
    let record = world.is_verified(name, True, "Proven").await;
    assert_eq!(record.status.unwrap().instance_group, Some("nodes".parse().unwrap()));
    world.has_labels(name, &OF_NODES).await;
    assert_eq!(world.patches(name).await, 1);
}

#[tokio::test]
async fn a_node_follows_its_instance_where_the_setting_says_so_and_never_into_the_control_plane() {
    let world = start().await;
    world.group_as("masters", "Master", &[("vault", "open")]);
    let follow = ("TIDEWAITER_ON_GROUP_CHANGE", "follow");
    let _controller = world.controller_with(&[OFTEN, follow]).await;
    let instance = joins(&world, 1, "nodes").await;
    let name = instance.node_name();
    world.has_labels(name, &OF_NODES).await;

    tag(&world, &instance, "batch");
    world.has_labels(name, &OF_BATCH).await;
    world.is_verified(name, True, "Proven").await;
    for (group, words) in [
        ("masters", "never becomes one of the control plane"),
        ("nowhere", "correct the file of the new group"),
    ] {
        tag(&world, &instance, group);
        let words = format!("names group {group}, but its Node was verified for group batch … {words}");
        world.says(name, "Verified", False, "GroupChanged", &words).await;
        world.has_labels(name, &OF_BATCH).await;
    }
    tag(&world, &instance, "nodes");
    world.has_labels(name, &OF_NODES).await;
    world.is_verified(name, True, "Proven").await;

    let master = joins(&world, 2, "masters").await;
    tag(&world, &master, "batch");
    world.has_labels(master.node_name(), &OF_BATCH).await;
}

/// The other tags of an instance are those of the group that launched it.
#[tokio::test]
async fn with_labels_from_tags_a_node_follows_to_the_file_and_no_tag_makes_it_a_control_plane() {
    let world = start().await;
    world.group_as("masters", "Master", &[("vault", "open")]);
    world.store.put("kops-version.txt", "1.36.0");
    let follow = ("TIDEWAITER_ON_GROUP_CHANGE", "follow");
    let _controller = world.controller_with(&[OFTEN, follow]).await;
    let label = |key: &str| format!("k8s.io/cluster-autoscaler/node-template/label/{key}");
    let of_tags = [
        (GROUP, "nodes"),
        ("node-role.kubernetes.io/node", ""),
        ("team", "tagged"),
    ];
    let instance = FakeInstance::numbered(1).kops(CLUSTER, "nodes");
    let instance = of_tags
        .iter()
        .fold(instance, |instance, (key, value)| instance.tag(&label(key), value));
    world.ec2.launch([instance.clone()]);
    Kubelet::register(&world.cluster, &World::node_of(&instance).build()).await;
    let name = instance.node_name();
    world.has_labels(name, &of_tags).await;

    let forged = label("node-role.kubernetes.io/control-plane");
    world.ec2.launch([instance.clone().tag(&forged, "")]);
    let words = "node-role.kubernetes.io/control-plane … does not make the Node of a worker one of the control plane";
    world.tells(name, "LabelRejected", words).await;
    world.has_labels(name, &of_tags).await;
    world
        .ec2
        .launch([instance.clone().tag(GROUP, "masters").tag(&forged, "")]);
    let words = "never becomes one of the control plane";
    world.says(name, "Verified", False, "GroupChanged", words).await;
    world.has_labels(name, &of_tags).await;

    tag(&world, &instance, "batch");
    world.has_labels(name, &OF_BATCH).await;
    world.is_verified(name, True, "Proven").await;
}
