//! Upgrades from beginning to end.

use serde_json::json;
use tidewaiter_api::containership::UpgradeStatus;

use crate::world::{NEW, OLD, Script, World};

/// Upgrades of a large cluster are planned over all of its nodes, one after the other.
const MANY: usize = 150;
/// Of the progress and of the status, of each node. What is written at the beginning and at the end comes on top.
const WRITES: usize = 6;

#[tokio::test]
async fn the_control_plane_goes_first_and_then_the_workers_one_at_a_time() {
    let world = World::start().await;
    for (name, version) in [("cp1", OLD), ("cp2", OLD), ("w1", OLD), ("w2", OLD), ("w3", NEW)] {
        world.join(name, version, &[("example.com/zone", "a")]).await;
    }
    world.join("other", OLD, &[("example.com/zone", "b")]).await;
    world
        .join(
            "unmanaged",
            OLD,
            &[("containership.io/managed", "false"), ("example.com/zone", "a")],
        )
        .await;
    let selector = json!([{"label": "example.com/zone", "operator": "in", "value": ["a", "c"]}]);
    world.upgrade("u", json!({ "labelSelector": selector })).await;
    let running = world.run().await;
    assert_eq!(world.play("u", |_| Script::Works).await, ["cp1", "cp2", "w1", "w2"]);
    assert_eq!(
        world.ends("u", UpgradeStatus::Success).await,
        "every selected node is at the version"
    );
    assert_eq!(
        world.statuses("u").await,
        "cp1=Success cp2=Success w1=Success w2=Success"
    );
    let progress = world.upgrades().get("u").await.unwrap().spec.status.unwrap();
    assert_eq!(
        (progress.current_node.as_str(), progress.current_start_time.as_str()),
        ("", "")
    );
    assert!(world.event("u", "Accepted").await.contains(NEW));
    assert!(
        world
            .event("u", "ClusterUpgradeComplete")
            .await
            .contains("every selected node")
    );
    world.is_quiet().await;
    running.stop().await;
    let mark = world.cluster.audit_mark().await;
    let _running = world.run().await;
    world.is_quiet().await;
    assert_eq!(
        world.written_since(mark).await,
        [""; 0],
        "nothing is written after a restart"
    );
}

#[tokio::test]
async fn a_node_is_done_when_everything_on_it_is_at_the_version_and_it_is_ready() {
    let world = World::start().await;
    world.join("cp", OLD, &[]).await;
    world.component("cp", "registry.k8s.io/kube-apiserver:v1.35.4").await;
    world.upgrade("u", json!({})).await;
    let _running = world.run().await;
    world
        .waits("u", "upgrading cp; 0 of 1 nodes are at the version, 0 failed")
        .await;
    world.is_ready("cp", false).await;
    world.is_at("cp", NEW).await;
    world.is_ready("cp", true).await;
    world.is_quiet().await;
    assert_eq!(world.statuses("u").await, "cp=InProgress", "its API server is old");
    // As kOps labels it.
    let kops = json!({"k8s-app": "kube-apiserver"});
    world
        .component_with("cp", "registry.k8s.io/kube-apiserver:v1.36.2", kops.clone())
        .await;
    world.is_quiet().await;
    assert_eq!(world.statuses("u").await, "cp=InProgress", "its API server is old");
    world
        .component_with("cp", "registry.k8s.io/kube-apiserver:v1.36.3", kops)
        .await;
    world.ends("u", UpgradeStatus::Success).await;
}

#[tokio::test]
async fn many_nodes_cost_few_writes_each() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    let names: Vec<String> = (0..MANY).map(|number| format!("w{number:03}")).collect();
    for name in &names {
        world.join(name, OLD, &[]).await;
    }
    let mark = world.cluster.audit_mark().await;
    world.upgrade("u", json!({})).await;
    let _running = world.run().await;
    assert_eq!(world.play("u", |_| Script::Works).await, names);
    world.ends("u", UpgradeStatus::Success).await;
    let audit = world
        .cluster
        .audit()
        .await
        .since(mark)
        .by(&crate::cluster::coordinator())
        .writes();
    let writes = audit.count();
    println!("{writes} writes for {MANY} nodes");
    assert!(writes <= MANY * WRITES + 10, "{writes}");
}
