//! The queries of `deploy/monitoring` about agents, on a real Prometheus that scrapes a real one.

use std::path::Path;

use serde_json::Value;
use tidewaiter_testkit::Prometheus;
use tidewaiter_testkit::prometheus::{panels, series_of};

use crate::world::{KEYS, World};

fn file(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/monitoring");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

/// The series of agents that alerts read.
fn alerting() -> Vec<String> {
    let rules: Value = serde_saphyr::from_str(&file("prometheusrule.yaml")).unwrap();
    let groups = rules["spec"]["groups"].as_array().unwrap().iter();
    let rules = groups.flat_map(|group| group["rules"].as_array().unwrap());
    let series = rules.flat_map(|rule| series_of(rule["expr"].as_str().unwrap()));
    series
        .filter(|series| series.starts_with("tidewaiter_agent_"))
        .collect()
}

#[tokio::test]
async fn every_panel_and_every_alert_of_the_agents_has_something_to_go_by() {
    let world = World::start().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[("TIDEWAITER_UPGRADES", "enabled")]).await;
    let prometheus = Prometheus::start(&[("agent", &agent.admin)], None).await;
    let dashboard: Value = serde_json::from_str(&file("grafana-dashboard.json")).unwrap();
    for query in panels(&dashboard, Some("Agents")).iter().chain(&alerting()) {
        prometheus.finds(query, |samples| !samples.is_empty()).await;
    }
    assert!(alerting().len() >= 5, "{:?}", alerting());
    prometheus
        .finds("max(tidewaiter_agent_keys)", |samples| matches!(samples, [(_, 1.0)]))
        .await;
}
