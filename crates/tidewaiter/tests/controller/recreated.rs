//! A Node deleted and created again under its name is another Node: what was planned for the old one never reaches it,
//! and what the record says of the old one does not count.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt as _;
use kube::api::DeleteParams;
use tidewaiter_api::ConditionStatus::True;
use tidewaiter_api::NodeIdentity;
use tidewaiter_testkit::{Action, ApiRequest, AuditMark, ControlPlane, Gate, Kubelet, eventually, throughout};

use crate::world::{Controller, SOON, World, service_account};

const GROUP: &str = "kops.k8s.io/instancegroup";
const NODE: &str = "node-role.kubernetes.io/node";

#[tokio::test]
async fn what_was_planned_for_the_old_node_never_reaches_the_new_one() {
    let world = World::start().await;
    let controller = world.controller().await;
    between_read_and_patch(&world, &controller).await;
    between_read_and_record(&world, &controller).await;
    world.quiet(Duration::from_secs(3)).await;
    controller.stops().await;
}

/// The patch of the Node is on its way when the Node becomes another.
async fn between_read_and_patch(world: &World, controller: &Controller) {
    world.group("patched", &[("left", "ours"), ("team", "red")]);
    let instance = world.launch(1, "patched");
    let name = instance.node_name();
    Kubelet::register(&world.cluster, &World::node_of(&instance).build()).await;
    world
        .has_labels(
            name,
            &[(GROUP, "patched"), (NODE, ""), ("left", "ours"), ("team", "red")],
        )
        .await;
    let old = world.nodes().get(name).await.unwrap();

    let patch = held(controller, |request| {
        request.method == "PATCH" && request.resource() == "nodes"
    });
    world.group("patched", &[("team", "green")]);
    arrives(&patch).await;
    // The old Node's record tells that `left` is ours. On the new one it never was.
    let mark = world.cluster.audit_mark().await;
    let new = again(world, World::node_of(&instance).label("left", "theirs").build()).await;
    patch.open();

    world
        .has_labels(
            name,
            &[(GROUP, "patched"), (NODE, ""), ("left", "theirs"), ("team", "green")],
        )
        .await;
    let record = is_of(world, &new).await;
    assert_ne!(record.spec.node_uid.as_str(), old.uid().unwrap());
    assert!(!world.recorded(name).await.contains_key("left"), "{record:?}");
    let answers = patches_since(world, mark, name).await;
    assert_eq!(answers.first(), Some(&409), "{answers:?}");
    assert_eq!(answers.last(), Some(&200), "{answers:?}");
}

/// The record of a new Node is on its way when the Node becomes another: it is written, and its Node's patch is
/// refused.
async fn between_read_and_record(world: &World, controller: &Controller) {
    world.group("recorded", &[("team", "red")]);
    let instance = world.launch(2, "recorded");
    let name = instance.node_name();
    let record = held(controller, creates_record);
    Kubelet::register(&world.cluster, &World::node_of(&instance).build()).await;
    arrives(&record).await;
    let mark = world.cluster.audit_mark().await;
    let new = again(world, World::node_of(&instance).build()).await;
    record.open();

    world
        .has_labels(name, &[(GROUP, "recorded"), (NODE, ""), ("team", "red")])
        .await;
    is_of(world, &new).await;
    let answers = patches_since(world, mark, name).await;
    assert_eq!(answers.first(), Some(&409), "{answers:?}");
    assert_eq!(answers.last(), Some(&200), "{answers:?}");
}

#[tokio::test]
async fn the_garbage_collector_takes_the_old_record_and_leaves_the_new_one() {
    let world = World::on(ControlPlane::builder().with_controller_manager().start().await).await;
    // The collector looks for new kinds every 30 s; started now, it knows ours.
    let collector = world.cluster.controller_manager().unwrap();
    collector.kill();
    collector.start_again();
    world.group("nodes", &[("team", "red")]);
    let controller = world.controller().await;
    let labels = [(GROUP, "nodes"), (NODE, ""), ("team", "red")];
    let instance = world.launch(1, "nodes");
    let name = instance.node_name();
    let node = World::node_of(&instance).build();
    Kubelet::register(&world.cluster, &node).await;
    world.has_labels(name, &labels).await;

    // While the controller runs: it takes over the record, or makes one when the collector was faster.
    let new = again(&world, node.clone()).await;
    world.has_labels(name, &labels).await;
    is_of(&world, &new).await;

    // While nobody leads: the record goes with its Node, though there is another of that name.
    controller.process.kill();
    let new = again(&world, node).await;
    is_collected(&world, name).await;
    world.expire_lease().await;
    controller.process.start_again();
    world.has_labels(name, &labels).await;
    let last = is_of(&world, &new).await;

    // A record that comes when its Node is gone already goes after it.
    let orphan = world.launch(2, "nodes");
    let record = held(&controller, creates_record);
    Kubelet::register(&world.cluster, &World::node_of(&orphan).build()).await;
    arrives(&record).await;
    delete(&world, orphan.node_name()).await;
    record.open();
    let created = r#"tidewaiter_writes_total{outcome="ok",resource="nodeidentities",verb="create"}"#;
    controller.has_metric(created, |created| created == 2.0).await;
    is_collected(&world, orphan.node_name()).await;

    // The collector had all this time to take the new one too.
    throughout("the new record to stay", Duration::from_secs(5), async || {
        let record = world.records().get_opt(name).await.unwrap();
        if record.as_ref().and_then(NodeIdentity::uid) == last.uid() {
            Ok(())
        } else {
            Err(format!("{record:?}"))
        }
    })
    .await;
    world.quiet(Duration::from_secs(1)).await;
    controller.stops().await;
}

async fn is_collected(world: &World, name: &str) {
    eventually(
        format!("the record of {name} to be collected"),
        SOON,
        async || match world.records().get_opt(name).await.unwrap() {
            None => Ok(()),
            Some(record) => Err(format!("{record:?}")),
        },
    )
    .await;
}

fn creates_record(request: &ApiRequest) -> bool {
    request.method == "POST" && request.resource() == "nodeidentities"
}

/// Holds the requests that are such from now on, until the gate is opened.
fn held(controller: &Controller, which: impl Fn(&ApiRequest) -> bool + Send + Sync + 'static) -> Gate {
    let gate = Gate::new();
    let hold = gate.clone();
    controller.proxy.hook(move |request| {
        if which(request) {
            Action::Hold(hold.clone())
        } else {
            Action::Forward
        }
    });
    gate
}

async fn arrives(gate: &Gate) {
    eventually("a write to be on its way", SOON, async || {
        if gate.held() > 0 { Ok(()) } else { Err("none is") }
    })
    .await;
}

async fn delete(world: &World, name: &str) {
    world.nodes().delete(name, &DeleteParams::default()).await.unwrap();
}

/// Deletes the Node, and registers this one under its name.
async fn again(world: &World, node: Node) -> Node {
    let name = node.name_any();
    delete(world, &name).await;
    Kubelet::register(&world.cluster, &node).await;
    world.nodes().get(&name).await.unwrap()
}

/// Waits until the record speaks of this very Node, and is owned by it.
async fn is_of(world: &World, node: &Node) -> NodeIdentity {
    let (name, uid) = (node.name_any(), node.uid().unwrap());
    eventually(format!("a record of the Node {name} {uid}"), SOON, async || {
        let record = world.is_verified(&name, True, "Proven").await;
        let owners: Vec<&str> = record
            .owner_references()
            .iter()
            .map(|owner| owner.uid.as_str())
            .collect();
        if record.spec.node_uid.as_str() == uid && owners == [uid.as_str()] {
            Ok(record)
        } else {
            Err(format!("{record:?}"))
        }
    })
    .await
}

/// Returns the API server's answers to the controller's patches of this Node.
async fn patches_since(world: &World, mark: AuditMark, name: &str) -> Vec<u16> {
    let audit = world.cluster.audit().await.since(mark).by(&service_account());
    let patches = audit.writes().of("nodes").filter(|entry| entry.object_ref.name == name);
    patches.iter().map(|entry| entry.response_status.code).collect()
}
