//! The responses of the MetricsServer, and when.

use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::json;
use tidewaiter_testkit::prometheus::promtool;
use tidewaiter_testkit::{Action, Scripted, eventually};

use super::{is_ready, pod, reports, run, two_workers};
use crate::world::{CLUSTER, Controller, SOON, World, repository, shown};

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

/// Every request is answered within this time, on a machine that does ten things at once: sooner than any request to an
/// API server that is away ends.
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
            .has_gauge_within(Duration::from_secs(25), gauge, Some(value))
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

/// A scraper connects again when its connection is closed.
async fn scrapes(controller: &Controller, times: usize, deadline: Duration) {
    for _ in 0..times {
        let scrape = async || controller.try_scrape().await.map_err(shown);
        let text = eventually("a scrape to be answered", deadline, scrape).await;
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
    tokio::join!(changes, join_all((0..50).map(|_| scrapes(&controller, 40, SOON))));
    controller.has_gauge("kops_node_ready", Some(2.0)).await;
    controller.proxy.down().await;
    scrapes(&controller, 20, AT_ONCE).await;
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
async fn idle_clients_of_every_port_delay_no_probe_and_no_scrape() {
    let world = World::start().await;
    two_workers(&world).await;
    let controller = world.controller().await;
    controller.has_gauge("kops_node_ready", Some(2.0)).await;
    let (admin, metrics, health) = (
        controller.admin_address(),
        &controller.metrics_address,
        &controller.health_address,
    );
    let mut idle = Vec::new();
    for address in [&admin, metrics, health] {
        for _ in 0..300 {
            idle.push(tokio::net::TcpStream::connect(address).await.unwrap());
        }
    }
    // Long for a busy machine, and less than the 15 s after which a connection without a request is closed.
    let client = reqwest::Client::builder()
        .timeout(Duration::from_secs(12))
        .build()
        .unwrap();
    for url in [
        format!("{health}/healthz"),
        format!("{health}/readyz"),
        format!("{admin}/metrics"),
        format!("{metrics}/metrics"),
    ] {
        let response = client.get(format!("http://{url}")).send().await.unwrap();
        response.error_for_status().unwrap().bytes().await.unwrap();
    }
    // A port holds 128 connections.
    assert!(controller.metric("process_open_fds").await < 3.0 * 128.0 + 120.0);
}

/// A probe that asks another port than the one for health waits behind every client of that port.
#[test]
fn the_probes_of_the_manifest_ask_the_health_port() {
    let path = repository().join("deploy/controller/daemonset.yaml");
    let manifest: DaemonSet = serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let spec = manifest.spec.template.spec.unwrap();
    let container = &spec.containers[0];
    let ports = container.ports.as_ref().unwrap();
    let health = ports
        .iter()
        .find(|port| port.name.as_deref() == Some("health"))
        .unwrap();
    let listens = container.env.as_ref().unwrap();
    let listens = listens
        .iter()
        .find(|variable| variable.name == "TIDEWAITER_HEALTH_ADDRESS");
    let address = format!("127.0.0.1:{}", health.container_port);
    assert_eq!(listens.unwrap().value.as_ref(), Some(&address));
    for (probe, path) in [
        (&container.liveness_probe, "/healthz"),
        (&container.readiness_probe, "/readyz"),
    ] {
        let asks = probe.as_ref().unwrap().http_get.as_ref().unwrap();
        assert_eq!(asks.path.as_deref(), Some(path));
        assert_eq!(asks.host.as_deref(), Some("127.0.0.1"));
        assert_eq!(asks.port, IntOrString::String("health".to_owned()));
    }
}
