//! One thing fails, and is repaired.

use k8s_openapi::api::core::v1::Node;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::api::LogParams;
use tidewaiter_testkit::{RealNode, Unit, eventually};

use crate::{SOON, busybox, node, pod_runs, pods, run_pod};

async fn comes_back(node: &RealNode, unit: Unit, before: u32) {
    eventually(format_args!("{unit:?} to run again"), SOON, async || {
        match node.main_pid(unit).await {
            pid if pid == 0 || pid == before => Err(format!("main process {pid}, before {before}")),
            _ => Ok(()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_killed_unit_is_started_again_and_a_stopped_one_is_not() {
    let node = node("units").await;
    let image = busybox("registry.invalid/units:1").await;
    node.load(&image).await;
    run_pod(&node, &image, &["sleep", "9999"]).await;
    for unit in [Unit::Kubelet, Unit::Containerd, Unit::KubeProxy] {
        let before = node.main_pid(unit).await;
        node.kill(unit).await;
        comes_back(&node, unit, before).await;
    }
    node.stop(Unit::Kubelet).await;
    node.not_ready().await;
    node.start_again(Unit::Kubelet).await;
    node.ready().await;
    pod_runs(&node, 0).await;
    let status = pods().await.get("units").await.unwrap().status.unwrap();
    assert_eq!(status.container_statuses.unwrap()[0].restart_count, 0, "pods run on");
}

#[tokio::test]
async fn a_paused_node_stands_still() {
    let node = node("paused").await;
    node.pause().await;
    node.not_ready().await;
    node.resume();
    node.ready().await;
}

#[tokio::test]
async fn a_node_without_network_is_alone() {
    let node = node("cut").await;
    node.cut_network().await;
    node.not_ready().await;
    assert!(node.main_pid(Unit::Kubelet).await > 0, "it runs on");
    node.heal_network().await;
    node.ready().await;
}

#[tokio::test]
async fn a_full_disk_is_reported_until_it_is_freed() {
    let node = node("full").await;
    node.has_condition("DiskPressure", "False").await;
    node.fill_disk().await;
    node.has_condition("DiskPressure", "True").await;
    node.free_disk().await;
    node.has_condition("DiskPressure", "False").await;
}

/// The shell itself says the time: a program that it starts would have the machine's.
const CLOCK: &str = "while :; do echo $EPOCHSECONDS; busybox usleep 200000; done";

/// Returns the time by which the clock of the node's kubelet is ahead of ours.
fn ahead(node: &Node) -> SignedDuration {
    let conditions = node.status.as_ref().unwrap().conditions.as_ref().unwrap();
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready").unwrap();
    ready.last_heartbeat_time.as_ref().unwrap().0.duration_since(now())
}

/// Returns the last time that the pod printed.
async fn pod_time() -> Timestamp {
    let last = LogParams {
        tail_lines: Some(1),
        ..LogParams::default()
    };
    let log = pods().await.logs("clock", &last).await.unwrap();
    Timestamp::from_second(log.trim().parse().unwrap()).unwrap()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the machine's time is what the node's is compared with"
)]
fn now() -> Timestamp {
    Timestamp::now()
}

#[tokio::test]
async fn a_clock_is_off_by_an_hour() {
    let node = node("clock").await;
    let image = busybox("registry.invalid/clock:1").await;
    node.load(&image).await;
    run_pod(&node, &image, &["sh", "-c", CLOCK]).await;
    let far = SignedDuration::from_mins(50);
    node.shift_clock(3600).await;
    eventually("kubelet to report a later time", SOON, async || {
        let ahead = ahead(&node.node().await);
        if ahead > far { Ok(()) } else { Err(format!("{ahead:?}")) }
    })
    .await;
    let seen: Timestamp = pod_time().await;
    assert!(seen.duration_since(now()) > far, "{seen} in the pod");
    node.shift_clock(0).await;
    eventually("kubelet to report the machine's time", SOON, async || {
        let ahead = ahead(&node.node().await);
        if ahead < far { Ok(()) } else { Err(format!("{ahead:?}")) }
    })
    .await;
}
