//! The queries of `deploy/monitoring` about the gauges, on a real Prometheus that scrapes a real controller.

use std::path::Path;

use serde_json::Value;
use tidewaiter_testkit::Prometheus;
use tidewaiter_testkit::prometheus::{panels, promtool, series_of};

use super::{auto_scaling_group, reports, two_workers};
use crate::world::{CLUSTER, World, repository};

fn file(path: &str) -> String {
    std::fs::read_to_string(repository().join(path)).unwrap()
}

fn dashboard() -> Value {
    serde_json::from_str(&file("deploy/monitoring/grafana-dashboard.json")).unwrap()
}

/// The rules as Prometheus reads them: what stands under `spec`.
pub fn rules() -> Value {
    let rule: Value = serde_saphyr::from_str(&file("deploy/monitoring/prometheusrule.yaml")).unwrap();
    rule["spec"].clone()
}

pub fn alerts(rules: &Value) -> Vec<&Value> {
    let groups = rules["groups"].as_array().unwrap();
    groups
        .iter()
        .flat_map(|group| group["rules"].as_array().unwrap())
        .collect()
}

#[tokio::test]
async fn every_panel_and_every_alert_has_something_to_go_by() {
    let world = World::start().await;
    let [one, _] = two_workers(&world).await;
    // One instance too few, for the alert that tells of it.
    auto_scaling_group(
        &world,
        "nodes",
        3,
        &[world.launch(1, "nodes"), world.launch(2, "nodes")],
    );
    let controller = world.controller().await;
    let admin = controller.admin_address();
    let targets = [
        ("metrics", controller.metrics_address.as_str()),
        ("admin", admin.as_str()),
    ];
    let at_once = serde_saphyr::to_string(&without_patience(rules())).unwrap();
    let prometheus = Prometheus::start(&targets, Some(&at_once)).await;
    controller.has_gauge("kops_node_ready", Some(2.0)).await;

    let ready = format!("kops_node_ready{{cluster_name=\"{CLUSTER}\"}}");
    prometheus.finds(&ready, |samples| matches!(samples, [(_, 2.0)])).await;
    for query in panels(&dashboard(), None) {
        let query = query.replace("$cluster", CLUSTER);
        prometheus.finds(&query, |samples| !samples.is_empty()).await;
    }
    // A series that an alert reads and nobody has would be an alert that cannot fire.
    for alert in alerts(&rules()) {
        for series in series_of(alert["expr"].as_str().unwrap()) {
            let conditional =
                ["tidewaiter_quarantine_held", "tidewaiter_reconcile_errors_total"].contains(&series.as_str());
            if !conditional && !is_of_another_role(&series) {
                prometheus.finds(&series, |samples| !samples.is_empty()).await;
            }
        }
    }
    reports(&one, "False").await;
    let expected = [
        "ClusterValidationFailed",
        "NodesNotReady",
        "InstanceGroupTooSmall",
        "ControlPlaneComponentUnhealthy",
    ];
    tidewaiter_testkit::eventually("the alerts to fire", crate::world::SOON, async || {
        let firing = prometheus.alerts().await;
        let missing: Vec<_> = expected
            .iter()
            .filter(|name| !firing.iter().any(|alert| alert == *name))
            .collect();
        if missing.is_empty() {
            Ok(())
        } else {
            Err(format!("{missing:?} of {firing:?}"))
        }
    })
    .await;
    controller.stops().await;
}

/// The same rules, which fire at once.
fn without_patience(mut rules: Value) -> Value {
    for group in rules["groups"].as_array_mut().unwrap() {
        for rule in group["rules"].as_array_mut().unwrap() {
            rule.as_object_mut().unwrap().remove("for");
        }
    }
    rules
}

/// The test of the coordinator looks for its own: `tests/coordinator/monitoring.rs`. Those of the agent are in
/// `tests/agent`, those of the cloud in `tests/cloud_server`.
fn is_of_another_role(series: &str) -> bool {
    [
        "tidewaiter_registr",
        "tidewaiter_cloud_s",
        "tidewaiter_cloud_audit",
        "tidewaiter_cloud_certificate",
        "tidewaiter_cloud_requests",
        "tidewaiter_node_pool",
        "tidewaiter_role_",
        "tidewaiter_plugin",
        "tidewaiter_upgrade",
        "tidewaiter_agent_",
    ]
    .iter()
    .any(|prefix| series.starts_with(prefix))
}

#[test]
fn the_rules_are_well_formed_and_each_has_its_chapter_in_the_docs() {
    let rules = rules();
    let text = serde_saphyr::to_string(&rules).unwrap();
    let checked = promtool(Path::new("/"), &["check", "rules", "/dev/stdin"], &text);
    let said = [checked.stdout, checked.stderr].concat();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&said));
    let chapters = file("docs/alerts.md");
    for alert in alerts(&rules) {
        let name = alert["alert"].as_str().unwrap();
        let link = format!("/docs/alerts.md#{}", name.to_lowercase());
        let runbook = alert["annotations"]["runbook_url"].as_str().unwrap();
        assert!(runbook.ends_with(&link), "{name}: {runbook}");
        assert!(
            chapters.contains(&format!("\n## {name}\n")),
            "docs/alerts.md has no chapter {name}"
        );
        assert!(
            alert["annotations"]["summary"].is_string() && alert["labels"]["severity"].is_string(),
            "{name}"
        );
    }
    assert_eq!(
        chapters.matches("\n## ").count(),
        alerts(&rules).len(),
        "a chapter about no alert"
    );
}
