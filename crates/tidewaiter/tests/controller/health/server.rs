//! What the MetricsServer answers, and when.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_testkit::prometheus::promtool;
use tidewaiter_testkit::{Action, Scripted, eventually};

use super::{is_ready, pod, reports, run, two_workers};
use crate::world::{CLUSTER, Controller, SOON, World};

/// The answer of the seed's example; its values and its cluster are others.
const SEED: &str = include_str!("seed.txt");

/// The lines of a scrape that are the seed's, without their values.
fn without_values(text: &str) -> String {
    let lines = text.lines().filter(|line| line.contains("kops_"));
    let bare = lines.map(|line| match line.rsplit_once(' ') {
        Some((series, _)) if !line.starts_with('#') => series.to_owned(),
        _ => line.to_owned(),
    });
    bare.map(|line| line + "\n").collect()
}

/// Every request is answered within this time, on a machine that does ten things at once: sooner than any request to an API server that
/// is away ends.
const AT_ONCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_scrape_reads_as_the_seed_says_and_promtool_takes_it() {
    let world = World::start().await;
    two_workers(&world).await;
    let controller = world.controller().await;
    controller.has_gauge("kops_node_ready", Some(2.0)).await;
    controller.has_gauge("kops_component_healthy", Some(1.0)).await;
    let text = controller.scrape().await;
    let ours = text.replace(CLUSTER, "clustername.mydomain.com");
    assert_eq!(without_values(&ours), without_values(SEED));
    assert!(text.starts_with("# HELP kops_component_healthy "), "{text}");

    let checked = promtool(Path::new("/"), &["check", "metrics"], &text);
    let said = String::from_utf8(checked.stderr).unwrap();
    // The seed's names, which nobody may change.
    assert_eq!(
        said.trim(),
        "kops_node_notReady metric names should be written in 'snake_case' not 'camelCase'\n\
         kops_pod_notReady metric names should be written in 'snake_case' not 'camelCase'"
    );
    let others = reqwest::get(format!("http://{}/", controller.metrics_address))
        .await
        .unwrap();
    assert_eq!(others.status(), 404, "it serves nothing else");
}

#[tokio::test]
async fn a_change_is_seen_at_once_and_so_is_its_end() {
    let world = World::start().await;
    let [one, _] = two_workers(&world).await;
    run(&world, &pod("kube-proxy", one.name()), true).await;
    let controller = world.controller().await;
    controller.has_gauge("kops_node_notReady", Some(0.0)).await;
    // Less than the half minute after which a verdict is made without any change.
    let seen = async |gauge, value| {
        controller
            .has_gauge_within(Duration::from_secs(20), gauge, Some(value))
            .await;
    };
    reports(&one, "False").await;
    seen("kops_node_notReady", 1.0).await;
    seen("kops_node_ready", 1.0).await;
    is_ready(&world, "kube-proxy", false).await;
    seen("kops_pod_notReady", 1.0).await;
    let text = controller.scrape().await;
    let failures =
        |kind: &str| format!("tidewaiter_cluster_failures{{cluster_name=\"{CLUSTER}\",kind=\"{kind}\"}} 1\n");
    assert!(
        text.contains(&failures("Node")) && text.contains(&failures("Pod")),
        "{text}"
    );
    is_ready(&world, "kube-proxy", true).await;
    reports(&one, "True").await;
    seen("kops_node_notReady", 0.0).await;
    seen("kops_pod_notReady", 0.0).await;
}

#[tokio::test]
async fn what_the_cloud_does_not_say_is_absent() {
    let world = World::start().await;
    two_workers(&world).await;
    world
        .ec2
        .script_for("DescribeAutoScalingGroups", [Scripted::error(403, "AccessDenied")]);
    let controller = world.controller().await;
    controller.has_gauge("kops_pod_pending", Some(0.0)).await;
    let text = controller.scrape().await;
    for absent in [
        "kops_node_ready",
        "kops_node_notReady",
        "kops_pod_missing",
        "tidewaiter_instance_group_",
    ] {
        assert!(!text.contains(absent), "{absent}: {text}");
    }
    let observed = format!("tidewaiter_cluster_observed{{cluster_name=\"{CLUSTER}\",part=\"cloud\"}} 0\n");
    assert!(text.contains(&observed), "{text}");
    // It asks again.
    controller.has_gauge("kops_node_ready", Some(2.0)).await;
}

async fn scrapes(controller: &Controller, times: usize) {
    for _ in 0..times {
        let text = tokio::time::timeout(AT_ONCE, controller.scrape()).await.unwrap();
        assert!(text.contains("tidewaiter_cluster_verdict_age_seconds"), "{text}");
    }
}

#[tokio::test]
async fn scrapes_are_answered_while_everything_changes_and_while_everything_is_away() {
    let world = World::start().await;
    let [one, two] = two_workers(&world).await;
    let controller = world.controller().await;
    controller.has_gauge("kops_node_ready", Some(2.0)).await;
    let changes = async {
        for number in 0..100 {
            let ready = if number % 2 == 0 { "False" } else { "True" };
            reports(&one, ready).await;
            reports(&two, ready).await;
        }
    };
    tokio::join!(changes, join_all((0..50).map(|_| scrapes(&controller, 40))));
    controller.has_gauge("kops_node_ready", Some(2.0)).await;
    controller.proxy.down().await;
    scrapes(&controller, 20).await;
    controller.proxy.up().await;
    controller.stops().await;
}

#[tokio::test]
async fn components_are_known_without_component_statuses() {
    let world = World::start().await;
    two_workers(&world).await;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "kube-scheduler"},
        "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"}});
    let lease = serde_json::from_value(lease).unwrap();
    world.leases().create(&PostParams::default(), &lease).await.unwrap();
    let controller = world.controller_that_is_not_ready(&[]);
    let gone = || Action::refuse(404, "NotFound", "the server could not find the requested resource");
    controller
        .proxy
        .on(|request| request.resource() == "componentstatuses", gone);
    controller.ready().await;
    // etcd, and the scheduler, whose Lease is first seen; the controller manager has none.
    controller.has_gauge("kops_component_healthy", Some(2.0)).await;
    controller.has_gauge("kops_component_unhealthy", Some(1.0)).await;
    // It is not renewed.
    controller.has_gauge("kops_component_healthy", Some(1.0)).await;
    controller.has_gauge("kops_component_unhealthy", Some(2.0)).await;
    let renewed = json!({"spec": {"renewTime": "2026-01-01T00:00:20.000000Z"}});
    let patch = Patch::Merge(renewed);
    world
        .leases()
        .patch("kube-scheduler", &PatchParams::default(), &patch)
        .await
        .unwrap();
    controller.has_gauge("kops_component_healthy", Some(2.0)).await;
}

#[tokio::test]
async fn every_replica_serves() {
    let world = World::start().await;
    two_workers(&world).await;
    let leader = world.controller().await;
    leader.leads().await;
    let standby = world.controller().await;
    for controller in [&leader, &standby] {
        controller.has_gauge("kops_node_ready", Some(2.0)).await;
    }
    assert_eq!(standby.metric("tidewaiter_leader").await, 0.0);
}

#[tokio::test]
async fn nobody_can_use_up_its_connections() {
    let world = World::start().await;
    two_workers(&world).await;
    let controller = world.controller().await;
    controller.has_gauge("kops_node_ready", Some(2.0)).await;
    let mut silent = Vec::new();
    for _ in 0..300 {
        silent.push(
            tokio::net::TcpStream::connect(&controller.metrics_address)
                .await
                .unwrap(),
        );
    }
    // It waits until the silent ones are thrown out, and is answered.
    eventually("a scrape to be answered", SOON, async || {
        let answer = reqwest::get(format!("http://{}/metrics", controller.metrics_address)).await;
        answer.and_then(reqwest::Response::error_for_status).map(drop)
    })
    .await;
    assert!(controller.metric("process_open_fds").await < 250.0);
}
