//! Everything is listed again, in a cluster of 5,000 Nodes.

use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _, stream};
use kube::api::PostParams;
use serde_json::json;
use tidewaiter_api::NodeIdentity;
use tidewaiter_api::names::KOPS_LEASE;
use tidewaiter_testkit::usage::{Memory, Peak};
use tidewaiter_testkit::{Recorded, builders, eventually, throughout};

use crate::world::{SOON, World};

const NODES: usize = 5000;

/// A standby: its caches are those of a leader, and nobody has to label 5,000 Nodes for it.
#[tokio::test]
async fn a_list_begun_anew_takes_no_second_copy_of_the_cluster() {
    let world = World::start().await;
    let lease = json!({
        "metadata": {"name": KOPS_LEASE},
        "spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600, "leaseTransitions": 0,
            "acquireTime": "2026-01-12T09:21:08.000000Z", "renewTime": "2026-01-12T09:21:08.000000Z"},
    });
    let lease = serde_json::from_value(lease).unwrap();
    world.leases().create(&PostParams::default(), &lease).await.unwrap();
    let (nodes, records, params) = (world.nodes(), world.records(), PostParams::default());
    stream::iter(0..NODES)
        .map(|number| {
            let (nodes, records, params) = (&nodes, &records, &params);
            async move {
                let instance = format!("i-{number:017x}");
                let node = builders::node(&instance).provider_id(&format!("aws:///us-test-1a/{instance}"));
                let node = nodes.create(params, &node.build()).await?;
                records
                    .create(params, &record(&instance, &node.metadata.uid.unwrap_or_default()))
                    .await
            }
        })
        .buffer_unordered(16)
        .try_for_each(|_| async { Ok(()) })
        .await
        .unwrap();

    let controller = world.controller().await;
    let asked = |watch| {
        ["nodes", "nodeidentities"].map(|resource| {
            let such = |request: &Recorded| request.resource() == resource && request.is_watch() == watch;
            controller.proxy.count(such)
        })
    };
    let watched = async |times| {
        let watches = asked(true);
        if watches == [times; 2] {
            Ok(())
        } else {
            Err(format!("{watches:?}"))
        }
    };
    eventually("everything to be watched", SOON, async || watched(1).await).await;
    let (pages, mut steady) = (asked(false), f64::INFINITY);
    throughout(
        "the allocator to give back what is free",
        Duration::from_secs(3),
        async || {
            steady = steady.min(Memory::of(controller.process.pid()).anonymous);
            Ok::<_, &str>(())
        },
    )
    .await;
    let mut peak = Peak::begin(controller.process.pid());
    controller.proxy.expire_watches();
    eventually("everything to be listed again", SOON, async || {
        peak.look();
        watched(3).await
    })
    .await;
    assert_eq!(asked(false), pages.map(|pages| 2 * pages), "as many pages as before");
    let most = peak.end().anonymous;
    // A page of each kind, as text and as objects. The objects alone, unpacked, would be 25 MiB.
    assert!(most <= steady + 8.0, "{most:.1} MiB at most, {steady:.1} MiB before");
}

/// As the controller writes it for a worker.
fn record(instance: &str, node_uid: &str) -> NodeIdentity {
    let label = |key: &str, value: &str, source: &str| json!({"key": key, "value": value, "source": source, "file": "instancegroup/nodes"});
    let time = "2026-01-12T09:21:08Z";
    let status = json!({
        "instance": instance, "instanceGroup": "nodes", "zone": "us-test-1a", "lifecycle": "on-demand", "firstVerified": time,
        "labels": [
            label("example.com/team", "web", "GroupNodeLabels"),
            label("example.com/tier", "front", "GroupNodeLabels"),
            label("kops.k8s.io/instancegroup", "nodes", "GroupNodeLabels"),
            label("node-role.kubernetes.io/node", "", "Role"),
        ],
        "conditions": [
            {"type": "Verified", "status": "True", "reason": "Proven", "lastTransitionTime": time,
                "message": format!("instance {instance} of group nodes in us-test-1a")},
            {"type": "LabelsValid", "status": "True", "reason": "AllValid", "lastTransitionTime": time,
                "message": "every label of the definition can be set"},
        ],
    });
    NodeIdentity::of_node(
        &instance.parse().unwrap(),
        &node_uid.parse().unwrap(),
        format!("aws:///us-test-1a/{instance}"),
        serde_json::from_value(status).unwrap(),
    )
}
