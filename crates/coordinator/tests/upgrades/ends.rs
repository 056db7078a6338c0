//! Upgrades that fail, are refused, paused or aborted.

use serde_json::json;
use tidewaiter_api::containership::UpgradeStatus;

use crate::world::{NEW, OLD, Script, World};

/// A timeout that passes within the test, and is longer than a pass takes.
const SHORT: i64 = 5;

#[tokio::test]
async fn a_misspelled_field_of_the_policy_is_refused() {
    let world = World::start().await;
    world.upgrade("u", json!({})).await;
    let policy = |policy| json!({"spec": {"policy": policy}});
    world
        .change_strictly("u", policy(json!({"paused": true})))
        .await
        .unwrap();
    let refused = world
        .change_strictly("u", policy(json!({"pause": true})))
        .await
        .unwrap_err();
    assert!(refused.contains("spec.policy.pause\""), "{refused}");
}

#[tokio::test]
async fn a_node_that_hangs_or_never_becomes_ready_fails_and_the_upgrade_goes_on() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2", "w3"] {
        world.join(name, OLD, &[]).await;
    }
    world.upgrade("u", json!({"nodeTimeoutSeconds": SHORT})).await;
    let _running = world.run().await;
    let script = |node: &str| match node {
        "w1" => Script::Hangs,
        "w2" => Script::NeverReady,
        _ => Script::Works,
    };
    assert_eq!(world.play("u", script).await, ["w1", "w2", "w3"]);
    let message = world.ends("u", UpgradeStatus::Failed).await;
    let why = format!("node w1 failed: after nodeTimeoutSeconds its kubelet is at {OLD}");
    assert_eq!(
        message,
        format!("{why}, and the node is Ready; 2 nodes failed; no other selected node is left to upgrade")
    );
    for words in [&why, "another node failed, too"] {
        world.waits("u", words).await;
    }
    assert_eq!(world.statuses("u").await, "w1=Failed w2=Failed w3=Success");
    let note = world.event("u", "NodeUpgradeFailure").await;
    assert!(note.contains("failed: "), "{note}");
}

#[tokio::test]
async fn what_is_not_permitted_or_impossible_is_refused_with_the_reason() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    world.join("w1", "v1.34.9", &[("example.com/zone", "a")]).await;
    world.create("unmanaged", json!({}), json!({})).await;
    let nobody = json!([{"label": "example.com/zone", "operator": "=", "value": ["x"]}]);
    let workers = json!([{"label": "example.com/zone", "operator": "exists"}]);
    for (name, spec) in [
        ("skips", json!({ "labelSelector": workers })),
        (
            "down",
            json!({"targetVersion": "v1.35.9", "labelSelector": [{"label": "example.com/zone", "operator": "!"}]}),
        ),
        ("nobody", json!({ "labelSelector": nobody })),
        ("etcd", json!({"type": "etcd"})),
        ("never", json!({"nodeTimeoutSeconds": 0})),
    ] {
        world.upgrade(name, spec).await;
    }
    let _running = world.run().await;
    for (name, why) in [
        (
            "skips",
            "w1 is at v1.34.9: an upgrade to v1.36.3 would skip a minor version",
        ),
        (
            "down",
            "cp is at v1.36.3, which is newer than v1.35.9, and a version never goes down",
        ),
        (
            "nobody",
            "no Node with the label containership.io/managed=true matches spec.labelSelector",
        ),
        ("etcd", "spec.type is etcd, which is not supported"),
        ("never", "spec.nodeTimeoutSeconds is 0"),
    ] {
        let message = world.ends(name, UpgradeStatus::Failed).await;
        assert!(message.contains(why), "{name}: {message}");
        let note = world.event(name, "ClusterUpgradeComplete").await;
        assert!(note.contains(why), "{name}: {note}");
        assert_eq!(world.statuses(name).await, "", "{name} started no node");
    }
    world
        .waits(
            "unmanaged",
            "the label containership.io/managed=true is missing; add it to permit the upgrade",
        )
        .await;
    assert!(world.event("unmanaged", "NotPermitted").await.contains("add it"));
    // It begins as soon as it may.
    world.is_at("w1", OLD).await;
    world
        .change(
            "unmanaged",
            json!({"metadata": {"labels": {"containership.io/managed": "true"}}}),
        )
        .await;
    assert_eq!(world.play("unmanaged", |_| Script::Works).await, ["w1"]);
    world.ends("unmanaged", UpgradeStatus::Success).await;
}

/// The kubelet writes the version, and must not keep the others from theirs.
#[tokio::test]
async fn the_version_of_one_node_fails_that_node_alone() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for (name, version) in [("w1", "v99.0.0"), ("w2", OLD), ("w3", "v1.34.0"), ("w4", OLD)] {
        world.join(name, version, &[]).await;
    }
    world
        .join("other", "v1.10.0", &[("containership.io/managed", "false")])
        .await;
    world.upgrade("u", json!({"policy": {"maxFailures": 1}})).await;
    let _running = world.run().await;
    assert_eq!(world.play("u", |_| Script::Works).await, ["w2", "w4"]);
    let message = world.ends("u", UpgradeStatus::Failed).await;
    assert!(
        message.starts_with("node w1 failed: no script was run: w1 is at v99.0.0"),
        "{message}"
    );
    assert!(
        message.contains("2 nodes failed; no other selected node is left"),
        "{message}"
    );
    assert_eq!(world.statuses("u").await, "w1=Failed w2=Success w3=Failed w4=Success");
    let note = world.event("u", "PreflightWarning").await;
    assert!(
        note.contains("w1 is at v99.0.0") && note.contains("w3 is at v1.34.0"),
        "{note}"
    );
}

#[tokio::test]
async fn a_person_pauses_resumes_and_aborts_and_limits_failures() {
    let world = World::start().await;
    world.join("cp", NEW, &[]).await;
    for name in ["w1", "w2", "w3"] {
        world.join(name, OLD, &[]).await;
    }
    let policy = |policy: serde_json::Value| json!({"spec": {"policy": policy}});
    world.upgrade("u", json!({"policy": {"paused": true}})).await;
    let _running = world.run().await;
    world
        .waits("u", "spec.policy.paused is set; remove it to continue")
        .await;
    world.change("u", policy(json!({"paused": null}))).await;
    world.waits("u", "upgrading w1").await;
    world.change("u", policy(json!({"paused": true}))).await;
    world.is_at("w1", NEW).await;
    world
        .waits(
            "u",
            "spec.policy.paused is set; remove it to continue; 2 of 4 nodes are at the version",
        )
        .await;
    world.change("u", policy(json!({"paused": null}))).await;
    world.waits("u", "upgrading w2").await;
    world.change("u", policy(json!({"aborted": true}))).await;
    world
        .waits(
            "u",
            "aborted (spec.policy.aborted) or deleted: it starts no further node, and is still upgrading w2",
        )
        .await;
    world.is_quiet().await;
    assert_eq!(
        world.statuses("u").await,
        "w1=Success w2=InProgress",
        "what was started is finished"
    );
    world.is_at("w2", NEW).await;
    let message = world.ends("u", UpgradeStatus::Failed).await;
    assert!(message.contains("it was aborted (spec.policy.aborted)"), "{message}");
    assert_eq!(world.statuses("u").await, "w1=Success w2=Success");

    world.join("w4", OLD, &[]).await;
    world
        .upgrade("v", json!({"nodeTimeoutSeconds": SHORT, "policy": {"maxFailures": 1}}))
        .await;
    assert_eq!(world.play("v", |_| Script::Hangs).await, ["w3"]);
    let message = world.ends("v", UpgradeStatus::Failed).await;
    assert!(message.contains("spec.policy.maxFailures is reached"), "{message}");
}
