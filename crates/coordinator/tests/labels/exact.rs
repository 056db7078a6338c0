//! The labels are exactly those of the resources, within the prefixes, and nothing else changes.

use std::time::Duration;

use kube::api::{DeleteParams, Patch, PatchParams};
use serde_json::json;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, NODE_POOL_LABEL};

use crate::world::World;

const POOL: &str = NODE_POOL_LABEL;

/// More than the changes of a Node by others that are undone at once.
const CHANGES: u32 = 30;

const A_WHILE: Duration = Duration::from_secs(2);

#[tokio::test]
async fn the_set_is_exact_within_the_prefixes_and_is_written_once() {
    let world = World::start().await;
    world.cluster_label("env", "1", "env", "prod").await;
    world.pool_label("fast", "gpu", "disk", "ssd").await;
    world.pool_label("slow", "web", "disk", "hdd").await;
    world.pool_label("zone", "web", "zone", "").await;
    // What the Go coordinator left behind: the cloud does not name it any more.
    let a = world.join(
        "a",
        &[(POOL, "gpu"), ("cluster.containership.io/old", "x"), ("team", "red")],
    );
    let a = a.await;
    world.join("b", &[(POOL, "web")]).await;
    world.join("c", &[("nodepool.containership.io/disk", "ssd")]).await;
    let running = world.by_label().await;
    let on_a = [("cluster/env", "prod"), ("nodepool/disk", "ssd"), ("pool", "gpu")];
    let on_b = [
        ("cluster/env", "prod"),
        ("nodepool/disk", "hdd"),
        ("nodepool/zone", ""),
        ("pool", "web"),
    ];
    let on_c = [("cluster/env", "prod")];
    world.has("a", &on_a).await;
    world.has("b", &on_b).await;
    world.has("c", &on_c).await;
    running
        .counts("tidewaiter_node_pool_decisions{decision=\"label\"}", 2.0)
        .await;
    running
        .counts("tidewaiter_node_pool_decisions{decision=\"none\"}", 1.0)
        .await;

    // Edited, removed and added labels are put right; those of others stay.
    let wrong = json!({"cluster.containership.io/env": "dev", "cluster.containership.io/mine": "x", "nodepool.containership.io/disk": null,
        "containership.io/node-id": "7"});
    world.label("a", wrong).await;
    world.has("a", &on_a).await;
    let others = a.nodes().get("a").await.unwrap().metadata.labels.unwrap();
    assert_eq!(
        (others["team"].as_str(), others["containership.io/node-id"].as_str()),
        ("red", "7")
    );

    // A Node that is deleted and created again, and one that is in another pool.
    world.delete("a").await;
    world.join("a", &[]).await;
    world.has("a", &on_c).await;
    world.label("a", json!({POOL: "web"})).await;
    world.has("a", &on_b).await;
    world.label("a", json!({POOL: "gpu"})).await;
    world.has("a", &on_a).await;

    // Heartbeats cause no write, nor does a restart.
    let mark = world.rests().await;
    for _ in 0..5 {
        a.heartbeat().await;
    }
    world.is_quiet(mark).await;
    running.stop().await;
    let mark = world.cluster.audit_mark().await;
    let running = world.by_label().await;
    running
        .counts("tidewaiter_node_pool_decisions{decision=\"label\"}", 2.0)
        .await;
    running
        .counts("tidewaiter_node_pool_decisions{decision=\"none\"}", 1.0)
        .await;
    world.is_quiet(mark).await;

    // What the cloud changes and takes away.
    world.cluster_label("env", "1", "env", "test").await;
    let gone = world.node_pool_labels().delete("zone", &DeleteParams::default()).await;
    gone.unwrap();
    world
        .has(
            "a",
            &[("cluster/env", "test"), ("nodepool/disk", "ssd"), ("pool", "gpu")],
        )
        .await;
    world
        .has(
            "b",
            &[("cluster/env", "test"), ("nodepool/disk", "hdd"), ("pool", "web")],
        )
        .await;
    world.has("c", &[("cluster/env", "test")]).await;
    // One write for each Node that a change concerns, and on a busy machine one of a pass that has not seen it yet.
    let writes = world.written_since(mark).await;
    assert!(
        writes.iter().all(|write| write.starts_with("patch nodes ")),
        "{writes:?}"
    );
    assert!((3..=5).contains(&writes.len()), "{writes:?}");
}

#[tokio::test]
async fn one_resource_that_does_not_count_hides_no_other() {
    let world = World::start().await;
    world.cluster_label("env", "1", "env", "prod").await;
    world.cluster_label("tier", "1", "tier", "front").await;
    world.join("a", &[]).await;
    // The definition refuses it today. It was stored before, or by an API server that ignores the rule.
    let outside = json!({"apiVersion": "containership.io/v3", "kind": "ClusterLabel",
        "metadata": {"name": "outside", "namespace": CONTAINERSHIP_NAMESPACE, "uid": "0b1f3a4e-3c1e-4c57-8d7e-1f2a3b4c5d6e",
            "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"id": "outside", "key": "kubernetes.io/os", "value": "plan9"}});
    let key = |name: &str| format!("containership.io/clusterlabels/{CONTAINERSHIP_NAMESPACE}/{name}");
    world.cluster.store(&key("outside"), &outside).await;
    let _running = world.by_label().await;
    world
        .has("a", &[("cluster/env", "prod"), ("cluster/tier", "front")])
        .await;
    let note = world.event(CONTAINERSHIP_NAMESPACE, "outside", "InvalidKey").await;
    assert!(
        note.contains("spec.key is kubernetes.io/os, must begin with cluster.containership.io/"),
        "{note}"
    );

    // Of two with one key, the newer one counts; the other one says so.
    world.cluster_label("env-2", "2", "env", "test").await;
    world
        .has("a", &[("cluster/env", "test"), ("cluster/tier", "front")])
        .await;
    let note = world.event(CONTAINERSHIP_NAMESPACE, "env", "Overruled").await;
    assert!(note.contains("which env-2 has for the same nodes"), "{note}");
    let gone = world.cluster_labels().delete("env-2", &DeleteParams::default()).await;
    gone.unwrap();
    world
        .has("a", &[("cluster/env", "prod"), ("cluster/tier", "front")])
        .await;
}

#[tokio::test]
async fn a_label_that_cannot_be_read_is_not_removed_after_a_restart() {
    let world = World::start().await;
    world.cluster_label("env", "1", "env", "prod").await;
    world.cluster_label("tier", "1", "tier", "front").await;
    world.join("a", &[]).await;
    let both = [("cluster/env", "prod"), ("cluster/tier", "front")];
    let running = world.by_label().await;
    world.has("a", &both).await;
    running.stop().await;
    let mut malformed = serde_json::to_value(world.cluster_labels().get("tier").await.unwrap()).unwrap();
    malformed["spec"]["key"] = json!("not a key");
    let key = format!("containership.io/clusterlabels/{CONTAINERSHIP_NAMESPACE}/tier");
    world.cluster.store(&key, &malformed).await;
    world.label("a", json!({"cluster.containership.io/env": null})).await;
    let _running = world.by_label().await;
    // The others proceed.
    world.has("a", &both).await;
    world.keeps("a", &both, A_WHILE).await;
    let corrected = json!({"spec": {"key": "cluster.containership.io/layer"}});
    let corrected = world
        .cluster_labels()
        .patch("tier", &PatchParams::default(), &Patch::Merge(corrected))
        .await;
    corrected.unwrap();
    world
        .has("a", &[("cluster/env", "prod"), ("cluster/layer", "front")])
        .await;
}

#[tokio::test]
async fn a_label_that_another_manager_applied_is_taken_over_only_if_the_cloud_names_its_key() {
    let world = World::start().await;
    world.cluster_label("env", "1", "env", "prod").await;
    world.pool_label("fast", "gpu", "disk", "ssd").await;
    world.join("a", &[(POOL, "web")]).await;
    let applied = json!({"cluster.containership.io/env": "dev", "cluster.containership.io/theirs": "x",
        "nodepool.containership.io/disk": "ssd"});
    world.apply_as("another-tool", "a", applied).await;
    let _running = world.by_label().await;
    // `env` is named for this Node, `disk` for the Nodes of another pool, and `theirs` for none.
    let expected = [("cluster/env", "prod"), ("cluster/theirs", "x"), ("pool", "web")];
    world.has("a", &expected).await;
    let note = world.event("default", "a", "ForeignLabels").await;
    assert!(
        note.contains("under cluster.containership.io/ that the cloud does not name"),
        "{note}"
    );
    world.keeps("a", &expected, A_WHILE).await;
    world.cluster_label("theirs", "1", "theirs", "ours").await;
    world
        .has(
            "a",
            &[("cluster/env", "prod"), ("cluster/theirs", "ours"), ("pool", "web")],
        )
        .await;
}

#[tokio::test]
async fn changes_of_the_resources_are_no_fight() {
    let world = World::start().await;
    world.join("a", &[]).await;
    let _running = world.by_label().await;
    for change in 0..CHANGES {
        let value = format!("v{change}");
        world.cluster_label("env", "1", "env", &value).await;
        world.has("a", &[("cluster/env", &value)]).await;
        assert_eq!(
            world.events("default", "a", "ChangesTooOften").await,
            [""; 0],
            "change {change}"
        );
    }
}
