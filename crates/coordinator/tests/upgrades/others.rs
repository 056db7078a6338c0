//! A second upgrade, nodes that come and go, and what another coordinator left.

use serde_json::json;
use tidewaiter_api::containership::UpgradeStatus;

use crate::world::{NEW, OLD, Script, World, is_over};

#[tokio::test]
async fn a_second_upgrade_waits_and_is_decided_about_afterwards() {
    let world = World::start().await;
    for name in ["cp", "w1"] {
        world.join(name, OLD, &[]).await;
    }
    world.upgrade("a", json!({})).await;
    let _running = world.run().await;
    world.waits("a", "upgrading cp").await;
    world.upgrade("b", json!({})).await;
    world.upgrade("down", json!({"targetVersion": "v1.35.9"})).await;
    world.waits("b", "the upgrade a goes first").await;
    world.waits("down", "the upgrade a goes first").await;
    assert_eq!(world.statuses("b").await, "");
    assert_eq!(world.play("a", |_| Script::Works).await, ["cp", "w1"]);
    world.ends("a", UpgradeStatus::Success).await;
    // Nothing is left to do, and nothing goes down.
    world.ends("b", UpgradeStatus::Success).await;
    let message = world.ends("down", UpgradeStatus::Failed).await;
    assert!(message.contains("a version never goes down"), "{message}");
}

#[tokio::test]
async fn a_node_that_is_added_is_upgraded_and_one_that_is_deleted_is_not_waited_for() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2", "w3"] {
        world.join(name, OLD, &[]).await;
    }
    world.upgrade("u", json!({"nodeTimeoutSeconds": 5})).await;
    let _running = world.run().await;
    world.waits("u", "upgrading w1").await;
    world.delete_node("w1").await;
    world.delete_node("w2").await;
    world.join("w4", OLD, &[]).await;
    let script = |node: &str| if node == "w1" { Script::Hangs } else { Script::Works };
    assert_eq!(world.play("u", script).await, ["w1", "w3", "w4"]);
    world.ends("u", UpgradeStatus::Failed).await;
    assert_eq!(world.statuses("u").await, "w1=Failed w3=Success w4=Success");
}

/// The Go coordinator wrote one node after the other, and everything in one write.
#[tokio::test]
async fn what_the_go_coordinator_began_is_finished() {
    let world = World::start().await;
    for (name, version) in [("cp1", NEW), ("cp2", OLD), ("w1", OLD), ("w2", OLD)] {
        world.join(name, version, &[]).await;
    }
    let status = json!({"clusterStatus": "InProgress", "nodeStatuses": {"cp1": "Success", "cp2": "InProgress", "w1": "Failed"},
        "currentNode": "cp2", "currentStartTime": "Sun Nov 22 05:29:17 UTC 2099"});
    world
        .upgrade("u", json!({"status": status, "description": "by the Go coordinator"}))
        .await;
    let done = json!({"clusterStatus": "Success", "nodeStatuses": {"cp1": "Success"}, "currentNode": "", "currentStartTime": ""});
    world
        .upgrade("earlier", json!({"status": done, "targetVersion": "v1.34.0"}))
        .await;
    let _running = world.run().await;
    assert_eq!(world.play("u", |_| Script::Works).await, ["cp2", "w2"]);
    world.ends("u", UpgradeStatus::Failed).await;
    assert_eq!(
        world.statuses("u").await,
        "cp1=Success cp2=Success w1=Failed w2=Success",
        "w1 is not repeated"
    );
    let upgrade = world.upgrades().get("u").await.unwrap();
    assert_eq!(upgrade.spec.description, "by the Go coordinator");
    world.ends("earlier", UpgradeStatus::Success).await;
    assert_eq!(world.statuses("earlier").await, "cp1=Success");
}

/// The node was started long ago by the clock of another machine: it fails at once.
#[tokio::test]
async fn a_start_that_is_long_ago_or_cannot_be_read_does_not_hang() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2"] {
        world.join(name, OLD, &[]).await;
    }
    let status = |start: &str| json!({"clusterStatus": "InProgress", "nodeStatuses": {"w1": "InProgress"}, "currentNode": "w1", "currentStartTime": start});
    world
        .upgrade("old", json!({"status": status("Sun Nov 22 05:29:17 UTC 2020")}))
        .await;
    let running = world.run().await;
    world.waits("old", "upgrading w2").await;
    assert_eq!(world.statuses("old").await, "w1=Failed w2=InProgress");
    running.stop().await;
    // A person does not wait for its node.
    world.change("old", json!({"metadata": {"finalizers": null}})).await;
    world
        .upgrades()
        .delete("old", &kube::api::DeleteParams::default())
        .await
        .unwrap();
    world
        .upgrade("torn", json!({"nodeTimeoutSeconds": 5, "status": status("yesterday")}))
        .await;
    let _running = world.run().await;
    world.play("torn", |_| Script::Hangs).await;
    let progress = world.upgrades().get("torn").await.unwrap().spec.status.unwrap();
    assert!(is_over(progress.cluster_status));
    assert_eq!(world.statuses("torn").await, "w1=Failed w2=Failed");
}
