//! A cloud that is away, or empty by mistake, takes no labels away.

use std::time::Duration;

use serde_json::json;
use tidewaiter_api::names::NODE_POOL_LABEL;
use tidewaiter_coordinator::node_pools::NodePools;
use tidewaiter_testkit::throughout;

use crate::cloud::Cloud;
use crate::world::{Running, World, owned};

const POOL: &str = NODE_POOL_LABEL;
/// The time for which a response is held.
const INTERVAL: Duration = Duration::from_secs(8);

#[tokio::test]
async fn an_empty_response_is_held_until_the_cloud_lists_nodes() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let gpu = cloud.pool("gpu").await;
    world.pool_label("fast", &gpu, "disk", "ssd").await;
    for name in ["a", "b", "c"] {
        cloud.node(&gpu, Some(name)).await;
        world.join(name, &[]).await;
    }
    let running = world.run(cloud.source(NodePools::Cloud, INTERVAL)).await;
    let labels = [("nodepool/disk", "ssd"), ("pool", &*gpu)];
    for name in ["a", "b", "c"] {
        world.has(name, &labels).await;
    }
    cloud.delete_pool(&gpu).await;
    running.counts("tidewaiter_node_pools_held", 1.0).await;
    keeps_while_held(&world, &running, &labels).await;
    // A restart does not confirm it: the labels of the Nodes are counted, not the response before it.
    running.stop().await;
    let running = world.run(cloud.source(NodePools::Cloud, INTERVAL)).await;
    running.counts("tidewaiter_node_pools_held", 1.0).await;
    keeps_while_held(&world, &running, &labels).await;
    // Another pool, to which they belong now.
    let web = cloud.pool("web").await;
    for name in ["a", "b", "c"] {
        cloud.node(&web, Some(name)).await;
    }
    for name in ["a", "b", "c"] {
        world.has(name, &[("pool", &*web)]).await;
    }
    running.counts("tidewaiter_node_pools_held", 0.0).await;
}

/// The Nodes have exactly these labels while the response is held: for two seconds, or less where a look takes longer.
async fn keeps_while_held(world: &World, running: &Running, labels: &[(&str, &str)]) {
    throughout("the labels of all Nodes", Duration::from_secs(2), async || {
        for name in ["a", "b", "c"] {
            let found = world.labels_of(name).await;
            // Asked after the look: it is not held any more before a label goes.
            let is_held = running.metric("tidewaiter_node_pools_held") == Some(1.0);
            if is_held && found != owned(labels) {
                return Err(format!("{name}: {found:?}"));
            }
        }
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_node_that_a_list_lacks_keeps_its_pool_until_the_cloud_has_deleted_it() {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let gpu = cloud.pool("gpu").await;
    world.pool_label("fast", &gpu, "disk", "ssd").await;
    let mut paths = Vec::new();
    for name in ["a", "b", "c"] {
        paths.push(cloud.node(&gpu, Some(name)).await);
        world.join(name, &[]).await;
    }
    let interval = Duration::from_secs(2);
    let mut running = world.run(cloud.source(NodePools::default(), interval)).await;
    let labels = [("nodepool/disk", "ssd"), ("pool", &*gpu)];
    for name in ["a", "b", "c"] {
        world.has(name, &labels).await;
    }
    for lacks in [&["a"][..], &["a", "b"]] {
        cloud.lacks(lacks);
        // The list changes, and the change stream says so.
        cloud.node(&gpu, None).await;
        running.counts("tidewaiter_node_pools_held", 1.0).await;
        keeps_while_held(&world, &running, &labels).await;
        // The first list of a process is no better.
        running.stop().await;
        running = world.run(cloud.source(NodePools::default(), interval)).await;
        running.counts("tidewaiter_node_pools_held", 1.0).await;
        keeps_while_held(&world, &running, &labels).await;
        // The right list has the ETag of the wrong one.
        cloud.lacks(&[]);
        running.counts("tidewaiter_node_pools_held", 0.0).await;
        for name in ["a", "b", "c"] {
            world.has(name, &labels).await;
        }
    }
    cloud.delete_node(&paths[0]).await;
    world.has("a", &[]).await;
    // Another name takes effect at once.
    cloud.change_node(&paths[1], json!({"name": "a"})).await;
    world.has("a", &labels).await;
    world.has("b", &[]).await;
    running.counts("tidewaiter_node_pools_held", 0.0).await;
}

#[tokio::test]
async fn while_the_cloud_is_away_nothing_of_a_pool_changes() {
    let (world, mut cloud) = (World::start().await, Cloud::start().await);
    let gpu = cloud.pool("gpu").await;
    world.cluster_label("env", "1", "env", "prod").await;
    world.pool_label("fast", &gpu, "disk", "ssd").await;
    cloud.node(&gpu, Some("a")).await;
    world.join("a", &[]).await;
    let running = world.run(cloud.source(NodePools::default(), INTERVAL)).await;
    let labels = [("cluster/env", "prod"), ("nodepool/disk", "ssd"), ("pool", &*gpu)];
    world.has("a", &labels).await;
    cloud.stops().await;
    // The last response still counts.
    world
        .label("a", json!({POOL: "web", "nodepool.containership.io/disk": "x"}))
        .await;
    world.has("a", &labels).await;
    running.stop().await;
    // After a restart there is none. The labels of the cluster need no cloud.
    world.label("a", json!({"cluster.containership.io/env": "x"})).await;
    let running = world.run(cloud.source(NodePools::default(), INTERVAL)).await;
    world.has("a", &labels).await;
    running
        .counts("tidewaiter_node_pool_decisions{decision=\"unknown\"}", 1.0)
        .await;
    world.keeps("a", &labels, Duration::from_secs(2)).await;
}
