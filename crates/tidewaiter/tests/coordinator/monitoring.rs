//! The queries of `deploy/monitoring` about the coordinator, on a real Prometheus that scrapes a real one.

use serde_json::{Value, json};
use tidewaiter_testkit::prometheus::{panels, series_of};
use tidewaiter_testkit::{FakeRegistries, Prometheus};

use crate::cloud::Cloud;
use crate::{World, deploy, unshared};

/// A token that lasts twelve hours, as those of ECR.
const HALF_A_DAY: i64 = 12 * 3_600;

fn file(name: &str) -> String {
    std::fs::read_to_string(deploy().join("../monitoring").join(name)).unwrap()
}

/// The series of the coordinator that alerts read.
fn alerting() -> Vec<String> {
    let rules: Value = serde_saphyr::from_str(&file("prometheusrule.yaml")).unwrap();
    let groups = rules["spec"]["groups"].as_array().unwrap().iter();
    let ours = groups.filter(|group| {
        let name = group["name"].as_str().unwrap();
        [
            "tidewaiter-registries",
            "tidewaiter-cloud",
            "tidewaiter-node-pools",
            "tidewaiter-roles",
            "tidewaiter-plugins",
            "tidewaiter-upgrades",
        ]
        .contains(&name)
    });
    let rules = ours.flat_map(|group| group["rules"].as_array().unwrap());
    let series = rules.flat_map(|rule| series_of(rule["expr"].as_str().unwrap()));
    // Of errors there are none here.
    let series: Vec<String> = series.filter(|series| !series.contains("_errors_")).collect();
    assert!(series.len() >= 10, "{series:?}");
    series
}

#[tokio::test]
async fn every_panel_and_every_alert_of_the_coordinator_has_something_to_go_by() {
    let (cluster, cloud) = tokio::join!(unshared(), Cloud::start());
    let world = World::on(cluster);
    world.cluster.apply_manifests(deploy().join("upgrades")).await;
    let registries = FakeRegistries::start().await;
    registries.ecr(Some(HALF_A_DAY));
    let registry = json!({"serveraddress": "123456789012.dkr.ecr.us-east-1.amazonaws.com", "provider": "amazon_ec2_registry",
        "description": "", "credentials": {"access_key_id": "AKID", "secret_access_key": "hunter2-aws"}});
    cloud.post("~/registries", registry).await;
    let label = json!({"key": "cluster.containership.io/environment", "value": "test"});
    cloud.post("^/labels", label).await;
    let mut variables = [cloud.variables(), registries.environment()].concat();
    variables.push(("TIDEWAITER_UPGRADES", "enabled".to_owned()));
    let coordinator = world.replica(&variables, None);
    let prometheus = Prometheus::start(&[("coordinator", &coordinator.admin)], None).await;
    let dashboard: Value = serde_json::from_str(&file("grafana-dashboard.json")).unwrap();
    for query in panels(&dashboard, Some("Coordinator")).iter().chain(&alerting()) {
        prometheus.finds(query, |samples| !samples.is_empty()).await;
    }
    let connected = "tidewaiter_cloud_stream_connected";
    prometheus
        .finds(connected, |samples| matches!(samples, [(_, 1.0)]))
        .await;
}
