//! The gauges, the condition and what the command line prints say the same of each fixture of `crates/validation`.

use jiff::Timestamp;
use serde_json::Value;
use tidewaiter_api::ConditionStatus;
use tidewaiter_validation::{FailureKind, Outcome, PartName, Verdict, judge, view};

use crate::cluster_health::plan::plan;
use crate::metrics_server::components::Components;
use crate::metrics_server::gauges;

#[path = "../../validation/tests/verdict/fixture.rs"]
#[expect(dead_code, reason = "what a fixture expects is compared where it lies")]
mod fixture;

/// The value of a gauge with this label, or without a label of its own.
fn gauge(text: &str, name: &str, label: Option<(&str, &str)>) -> Option<u32> {
    let label = label.map(|(key, value)| format!("{key}=\"{value}\""));
    let is_it = |line: &&str| {
        line.split('{').next() == Some(name) && label.as_ref().is_none_or(|label| line.contains(label.as_str()))
    };
    let line = text.lines().find(is_it)?;
    line.rsplit(' ').next()?.parse().ok()
}

#[test]
fn every_view_says_the_same_of_every_fixture() {
    let fixtures = fixture::all();
    assert!(fixtures.len() > 50, "the fixtures are not where they are looked for");
    for fixture in fixtures {
        let verdict = judge(&fixture.seen, &fixture.options);
        let components = Components::default();
        let text = gauges::page(&fixture.seen.cluster, &verdict, Some(components)).unwrap();
        let health = plan(None, &verdict, Timestamp::UNIX_EPOCH).unwrap().status;
        let printed: Value = serde_json::from_str(&view::json(&verdict).unwrap()).unwrap();
        let name = &fixture.name;
        outcomes(
            name,
            &verdict,
            &text,
            health.conditions[0].status,
            &view::table(&verdict),
        );

        let listed = printed["failures"].as_array().map_or(0, Vec::len);
        let by_kind = FailureKind::ALL
            .map(|kind| gauge(&text, "tidewaiter_cluster_failures", Some(("kind", kind.as_str()))).unwrap() as usize);
        assert_eq!(by_kind.iter().sum::<usize>(), listed, "{name}");
        assert_eq!(health.failures as usize, listed, "{name}");

        let unknown: Vec<&str> = printed["unknown"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|part| part["part"].as_str().unwrap())
            .collect();
        for part in PartName::ALL.map(|part| part.to_string()) {
            let observed = gauge(&text, "tidewaiter_cluster_observed", Some(("part", &part)));
            assert_eq!(observed == Some(0), unknown.contains(&part.as_str()), "{name}: {part}");
        }

        let counts = health.counts;
        for (gauge_name, count) in [
            ("kops_node_ready", counts.nodes_ready),
            ("kops_node_notReady", counts.nodes_not_ready),
            ("kops_pod_missing", counts.pods_missing),
            ("kops_pod_notReady", counts.pods_not_ready),
            ("kops_pod_pending", counts.pods_pending),
            ("kops_pod_unknown", counts.pods_unknown),
        ] {
            assert_eq!(gauge(&text, gauge_name, None), count, "{name}: {gauge_name}");
        }
        if let Some(nodes) = printed["nodes"].as_array() {
            let counted = counts.nodes_ready.unwrap_or_default() + counts.nodes_not_ready.unwrap_or_default();
            assert_eq!(counted as usize, nodes.len(), "{name}");
        }
    }
}

fn outcomes(name: &str, verdict: &Verdict, gauges: &str, condition: ConditionStatus, table: &str) {
    let (label, status, ends) = match verdict.outcome() {
        Outcome::Ready => (
            "ready",
            ConditionStatus::True,
            "Your cluster cluster.example.com is ready\n",
        ),
        Outcome::Failed => ("failed", ConditionStatus::False, "Validation Failed\n"),
        Outcome::Unknown => (
            "unknown",
            ConditionStatus::Unknown,
            "Cannot tell whether your cluster cluster.example.com is ready\n",
        ),
    };
    assert_eq!(condition, status, "{name}");
    assert!(table.ends_with(ends), "{name}: {table}");
    for outcome in ["ready", "failed", "unknown"] {
        let told = gauge(gauges, "tidewaiter_cluster_verdict", Some(("verdict", outcome)));
        assert_eq!(told, Some(u32::from(outcome == label)), "{name}");
    }
}
