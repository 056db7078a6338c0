//! A kubelet that labels itself into another node pool.

use std::time::{Duration, Instant};

use serde_json::json;
use tidewaiter_api::names::NODE_POOL_LABEL;
use tidewaiter_coordinator::node_pools::NodePools;
use tidewaiter_testkit::eventually;

use crate::cloud::Cloud;
use crate::world::{SOON, World};

const POOL: &str = NODE_POOL_LABEL;
const INTERVAL: Duration = Duration::from_secs(30);

struct Field {
    world: World,
    cloud: Cloud,
    gpu: String,
    web: String,
}

/// Node `a` in the pool gpu, Node `b` in the pool web, both known to the cloud by name; and the labels of both pools.
async fn field() -> Field {
    let (world, cloud) = (World::start().await, Cloud::start().await);
    let (gpu, web) = (cloud.pool("gpu").await, cloud.pool("web").await);
    cloud.node(&gpu, Some("a")).await;
    cloud.node(&web, Some("b")).await;
    world.cluster_label("env", "1", "env", "prod").await;
    world.pool_label("fast", &gpu, "disk", "ssd").await;
    world.pool_label("only", &gpu, "gpu-only", "yes").await;
    world.pool_label("slow", &web, "disk", "hdd").await;
    Field { world, cloud, gpu, web }
}

#[tokio::test]
async fn a_kubelet_that_labels_itself_into_another_pool() {
    let Field { world, cloud, gpu, web } = field().await;
    let running = world.run(cloud.source(NodePools::default(), INTERVAL)).await;
    world.join("a", &[]).await;
    let b = world.join("b", &[(POOL, &gpu)]).await;
    let on_a = [
        ("cluster/env", "prod"),
        ("nodepool/disk", "ssd"),
        ("nodepool/gpu-only", "yes"),
        ("pool", &gpu),
    ];
    let on_b = [("cluster/env", "prod"), ("nodepool/disk", "hdd"), ("pool", &web)];
    world.has("a", &on_a).await;
    world.has("b", &on_b).await;
    let note = world.event("default", "b", "NodePoolCorrected").await;
    assert!(
        note.contains(&format!("in the node pool {web}")) && !note.contains(&gpu),
        "{note}"
    );
    running.counts("tidewaiter_node_pool_corrections_total", 1.0).await;
    running
        .counts("tidewaiter_node_pool_decisions{decision=\"cloud\"}", 2.0)
        .await;

    // It claims a pool that the cloud does not have, takes the labels of the other pool directly, or gives up its own.
    for labels in [
        json!({POOL: "another"}),
        json!({POOL: gpu, "nodepool.containership.io/disk": "ssd", "nodepool.containership.io/gpu-only": "yes"}),
        json!({POOL: null, "nodepool.containership.io/disk": null}),
    ] {
        b.patch(json!({"metadata": {"labels": labels}})).await.unwrap();
        world.has("b", &on_b).await;
    }
    running.counts("tidewaiter_node_pool_corrections_total", 3.0).await;

    // A Node that the cloud does not know does not get into a pool whose nodes the cloud knows, but into one of which
    // it knows no name.
    let unnamed = cloud.pool("unnamed").await;
    cloud.node(&unnamed, None).await;
    world.pool_label("old", &unnamed, "disk", "old").await;
    world
        .join(
            "stranger",
            &[(POOL, &gpu), ("nodepool.containership.io/gpu-only", "yes")],
        )
        .await;
    world.has("stranger", &[("cluster/env", "prod")]).await;
    world.join("legacy", &[(POOL, &unnamed)]).await;
    world
        .has(
            "legacy",
            &[("cluster/env", "prod"), ("nodepool/disk", "old"), ("pool", &unnamed)],
        )
        .await;
    running
        .counts("tidewaiter_node_pool_decisions{decision=\"label\"}", 1.0)
        .await;
    // Anyone who tries it for the first time is reported; nobody else was touched.
    world.event("default", "stranger", "NodePoolCorrected").await;
    world.has("a", &on_a).await;
}

#[tokio::test]
async fn a_kubelet_that_flips_its_label_causes_a_bounded_number_of_writes() {
    /// Writes at once; then one each 10 s.
    const BURST: u64 = 20;
    let Field { world, cloud, gpu, web } = field().await;
    let b = world.join("b", &[]).await;
    let running = world.run(cloud.source(NodePools::default(), INTERVAL)).await;
    let on_b = [("cluster/env", "prod"), ("nodepool/disk", "hdd"), ("pool", &*web)];
    world.has("b", &on_b).await;
    let (mark, begin) = (world.cluster.audit_mark().await, now());
    let flips = async {
        for flip in 0_u64.. {
            let claim = if flip % 2 == 0 { &gpu } else { "nobody" };
            b.patch(json!({"metadata": {"labels": {POOL: claim}}})).await.unwrap();
            // The label of the other pool is never given.
            let labels = world.labels_of("b").await;
            assert!(!labels.contains_key("nodepool/gpu-only"), "{labels:?}");
        }
    };
    // It stops when it is told of, however many of its changes the controller saw as one.
    tokio::select! {
        () = flips => {}
        _ = world.event("default", "b", "ChangesTooOften") => {}
    }
    let writes = world.written_since(mark).await;
    let patches = writes.iter().filter(|write| write.starts_with("patch nodes")).count();
    let most = BURST + begin.elapsed().as_secs() / 10 + 1;
    assert!(patches as u64 <= most, "{patches} writes, most {most}");
    let events = writes.len() - patches;
    assert!(events <= 2, "{events} Events: NodePoolCorrected, ChangesTooOften");
    // Nobody waits because of it, and its own labels are right in the end. Behind b, whose labels are written every 10
    // s, these would take a minute and a half.
    let others = ["a", "c", "d", "e", "f", "g", "h", "i", "j", "k"];
    for name in others {
        world.join(name, &[]).await;
    }
    eventually("the labels of the other Nodes", Duration::from_mins(1), async || {
        for name in others {
            let labels = world.labels_of(name).await;
            let is_missing = !labels.contains_key("cluster/env");
            if is_missing || (name == "a" && !labels.contains_key("nodepool/gpu-only")) {
                return Err(format!("{name}: {labels:?}"));
            }
        }
        Ok(())
    })
    .await;
    world.has("b", &on_b).await;
    drop(running);
}

#[tokio::test]
async fn a_node_follows_its_pool_in_the_cloud() {
    let Field { world, cloud, gpu, web } = field().await;
    let running = world.run(cloud.source(NodePools::Cloud, INTERVAL)).await;
    world.join("b", &[]).await;
    world.join("late", &[]).await;
    world
        .has(
            "b",
            &[("cluster/env", "prod"), ("nodepool/disk", "hdd"), ("pool", &web)],
        )
        .await;
    world.has("late", &[("cluster/env", "prod")]).await;
    running
        .counts("tidewaiter_node_pool_decisions{decision=\"none\"}", 1.0)
        .await;
    // Long before the next poll, because the change stream names the nodes.
    let on_gpu = [
        ("cluster/env", "prod"),
        ("nodepool/disk", "ssd"),
        ("nodepool/gpu-only", "yes"),
        ("pool", &*gpu),
    ];
    let late = cloud.node(&gpu, Some("late")).await;
    world.has("late", &on_gpu).await;
    cloud.delete_node(&late).await;
    world.has("late", &[("cluster/env", "prod")]).await;
    cloud.node(&web, Some("late")).await;
    world
        .has(
            "late",
            &[("cluster/env", "prod"), ("nodepool/disk", "hdd"), ("pool", &web)],
        )
        .await;
    assert_eq!(cloud.listed().await.as_array().unwrap().len(), 3);
    eventually("a successful sync", SOON, async || {
        let at = running.metric("tidewaiter_node_pools_last_sync_timestamp_seconds");
        at.filter(|at| *at > 0.0).map(drop).ok_or("none")
    })
    .await;
}

#[expect(
    clippy::disallowed_methods,
    reason = "the pace of the writes is that of the real clock"
)]
fn now() -> Instant {
    Instant::now()
}
