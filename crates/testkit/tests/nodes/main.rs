//! Real nodes: they are what they are asked to be, each fault does what it says, and nothing is left of them.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, PostParams};
use serde_json::json;
use tidewaiter_testkit::{ControlPlane, Identity, Image, KubeletVersion, NodeOptions, RealNode, assets, eventually};
use tokio::sync::OnceCell;

mod cleanup;
mod faults;
mod power;
mod workloads;

/// For what takes seconds on an idle machine.
const SOON: Duration = Duration::from_mins(4);

/// One for all tests, each of which has nodes of its own: eight at most at a time.
async fn control_plane() -> &'static ControlPlane {
    static SHARED: OnceCell<ControlPlane> = OnceCell::const_new();
    SHARED
        .get_or_init(|| ControlPlane::builder().with_nodes().start())
        .await
}

async fn node(name: &str) -> RealNode {
    RealNode::start(control_plane().await, KubeletVersion::Current, &NodeOptions::new(name)).await
}

/// An image with a shell under this name, with an archive in the folder of the control plane.
async fn busybox(name: &str) -> Image {
    let program = assets::node_tree().join("root/bin/busybox");
    let files = [(program.as_path(), "bin/busybox"), (program.as_path(), "bin/sh")];
    Image::build(control_plane().await.folder(), name, &files, &["/bin/busybox"]).await
}

async fn pods() -> Api<Pod> {
    Api::default_namespaced(control_plane().await.client(&Identity::Admin))
}

/// Runs a pod of this image and these arguments on a node, and waits until it runs.
async fn run_pod(node: &RealNode, image: &Image, args: &[&str]) {
    let pod = serde_json::from_value(json!({
        "metadata": {"name": node.name()},
        "spec": {
            "nodeName": node.name(),
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": image.name(), "args": args}],
        },
    }));
    let created = pods().await.create(&PostParams::default(), &pod.unwrap()).await;
    created.unwrap();
    pod_runs(node, 0).await;
}

/// Waits until the pod of a node runs, started again at least so many times.
async fn pod_runs(node: &RealNode, restarts: i32) {
    let pods = pods().await;
    eventually(format_args!("the pod of {} to run", node.name()), SOON, async || {
        let status = pods.get(node.name()).await.unwrap().status.unwrap_or_default();
        let containers = status.container_statuses.unwrap_or_default();
        match containers.first() {
            Some(main) if main.ready && main.restart_count >= restarts => Ok(()),
            _ => Err(format!("{:?} {containers:?}", status.phase)),
        }
    })
    .await;
}
