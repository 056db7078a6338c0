//! Everything of a node ends at once, or in good order, and comes back with its disk.

use tidewaiter_testkit::RealNode;

use crate::{busybox, node, pod_runs, run_pod};

async fn boot_id(node: &RealNode) -> String {
    node.node().await.status.unwrap().node_info.unwrap().boot_id
}

/// As a container is left when runc, which freezes it in order to kill all of it, is ended in between.
async fn freeze_containers(node: &RealNode) {
    let freeze = "for state in /sys/fs/cgroup/freezer/kubepods/*/pod*/*/freezer.state; do echo FROZEN >$state; done";
    node.run(["sh", "-ec", freeze]).await;
}

#[tokio::test]
async fn a_node_comes_back_from_a_power_cut_and_a_reboot() {
    let node = node("power").await;
    let image = busybox("registry.invalid/power:1").await;
    node.load(&image).await;
    run_pod(&node, &image, &["sleep", "9999"]).await;
    node.run(["sh", "-c", "echo kept >/root/file"]).await;
    let first = boot_id(&node).await;

    node.power_cut().await;
    node.not_ready().await;
    node.power_on().await;
    node.ready().await;
    let second = boot_id(&node).await;
    assert_ne!(first, second);
    assert_eq!(node.run(["cat", "/root/file"]).await, "kept\n");
    pod_runs(&node, 1).await;

    freeze_containers(&node).await;
    node.reboot().await;
    node.ready().await;
    assert_ne!(boot_id(&node).await, second);
    assert_eq!(node.run(["cat", "/root/file"]).await, "kept\n");
    pod_runs(&node, 2).await;
    // It can be dropped all the same.
    freeze_containers(&node).await;
}
