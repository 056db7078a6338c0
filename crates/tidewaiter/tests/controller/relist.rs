//! Everything is listed again, in a cluster of 5,000 Nodes.

use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{ListParams, PostParams};
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
    let first = "i-00000000000000000";
    let node = builders::node(first).provider_id(&format!("aws:///us-test-1a/{first}"));
    let node = world
        .nodes()
        .create(&PostParams::default(), &node.build())
        .await
        .unwrap();
    let record = record(first, &node.uid().unwrap());
    let record = world.records().create(&PostParams::default(), &record).await.unwrap();
    let uids = [node.uid().unwrap(), record.uid().unwrap()];
    let texts = [first, &uids[0], &uids[1]];
    let copies = || {
        let uids = |number| uids.clone().map(|uid| format!("{number:08x}{}", &uid[8..]));
        (1..NODES).map(move |number| {
            let [node, record] = uids(number);
            [format!("i-{number:017x}"), node, record]
        })
    };
    for kind in ["minions", "tidewaiter.dev/nodeidentities"] {
        world.cluster.copy(&format!("{kind}/{first}"), texts, copies()).await;
    }
    // The copies are as the API server would have made them.
    let last = format!("i-{:017x}", NODES - 1);
    let (node, record) = (
        world.nodes().get(&last).await.unwrap(),
        world.records().get(&last).await.unwrap(),
    );
    assert_eq!(
        node.spec.unwrap().provider_id,
        Some(format!("aws:///us-test-1a/{last}"))
    );
    assert_eq!(record.owner_references()[0].uid, node.metadata.uid.unwrap());
    assert_eq!(
        world
            .nodes()
            .list_metadata(&ListParams::default())
            .await
            .unwrap()
            .items
            .len(),
        NODES
    );

    let controller = world.controller().await;
    let of = |request: &Recorded, resource| !request.is_write() && request.path.ends_with(&format!("/{resource}"));
    let watches = || {
        ["nodes", "nodeidentities"].map(|resource| {
            controller
                .proxy
                .count(|request| of(request, resource) && request.is_watch())
        })
    };
    let more = async |before: [usize; 2], times| {
        let now = watches();
        if (0..2).all(|kind| now[kind] >= before[kind] + times) {
            Ok(())
        } else {
            Err(format!("{now:?}"))
        }
    };
    eventually("everything to be watched", SOON, async || more([0; 2], 1).await).await;
    let mut steady = f64::INFINITY;
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
    let before = watches();
    controller.proxy.expire_watches();
    eventually("everything to be listed again", SOON, async || {
        peak.look();
        // The watch that has expired, and the one after the list.
        more(before, 2).await
    })
    .await;
    let most = peak.end().anonymous;
    for resource in ["nodes", "nodeidentities"] {
        let whole =
            |request: &Recorded| of(request, resource) && !request.is_watch() && !request.query.contains("limit=");
        assert_eq!(controller.proxy.count(whole), 0, "{resource} are listed in pages only");
    }
    // A page of each kind, as text and as objects: 6 MiB, and 13 MiB beside a compiler, where the pages of both kinds
    // wait for a processor. The objects alone, unpacked, would be 25 MiB.
    assert!(most <= steady + 18.0, "{most:.1} MiB at most, {steady:.1} MiB before");
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
                "message": format!("instance {instance} of group nodes in us-test-1a; its group is a tag of the instance, which \
                    the EC2 API changes for IAM roles with ec2:CreateTags")},
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
