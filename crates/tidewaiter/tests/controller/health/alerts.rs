//! When the alerts of `deploy/monitoring` fire, and when they do not: promtool evaluates them over made-up series of
//! two replicas.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tidewaiter_testkit::Scratch;
use tidewaiter_testkit::prometheus::promtool;

use super::monitoring::{alerts, rules};

/// The metrics of two replicas in a healthy cluster, each value at the edge of what is healthy.
const HEALTHY: [(&str, [u32; 2]); 68] = [
    (
        r#"tidewaiter_cluster_verdict{cluster_name="c",verdict="failed"}"#,
        [0, 0],
    ),
    (
        r#"tidewaiter_cluster_verdict{cluster_name="c",verdict="passed"}"#,
        [1, 1],
    ),
    (r#"tidewaiter_cluster_observed{cluster_name="c",part="cloud"}"#, [1, 1]),
    (
        r#"tidewaiter_cluster_verdict_age_seconds{cluster_name="c"}"#,
        [120, 120],
    ),
    (r#"kops_node_notReady{cluster_name="c"}"#, [0, 0]),
    (r#"kops_pod_missing{cluster_name="c"}"#, [0, 0]),
    (r#"kops_pod_pending{cluster_name="c"}"#, [0, 0]),
    (r#"kops_pod_notReady{cluster_name="c"}"#, [0, 0]),
    (r#"kops_pod_unknown{cluster_name="c"}"#, [0, 0]),
    (r#"kops_component_unhealthy{cluster_name="c"}"#, [0, 0]),
    (
        r#"tidewaiter_instance_group_target_instances{cluster_name="c",instance_group="g"}"#,
        [2, 2],
    ),
    (
        r#"tidewaiter_instance_group_current_instances{cluster_name="c",instance_group="g"}"#,
        [2, 2],
    ),
    (
        r#"tidewaiter_instance_group_outdated_instances{cluster_name="c",instance_group="g"}"#,
        [0, 0],
    ),
    (r#"tidewaiter_nodes{state="verified"}"#, [3, 0]),
    (r#"tidewaiter_nodes{state="waiting"}"#, [1, 0]),
    (r#"tidewaiter_nodes{state="forged"}"#, [0, 0]),
    (r#"tidewaiter_nodes{state="refused"}"#, [0, 0]),
    (r#"tidewaiter_nodes{state="undefined"}"#, [0, 0]),
    (r#"tidewaiter_nodes{state="unanswered"}"#, [0, 0]),
    (r#"tidewaiter_nodes{state="failed"}"#, [0, 0]),
    (r#"tidewaiter_undecodable_objects{kind="NodeIdentity"}"#, [0, 0]),
    (r#"tidewaiter_cache_stale_seconds{cache="node"}"#, [300, 300]),
    ("tidewaiter_quarantine_held", [0, 0]),
    ("tidewaiter_state_store_problems", [0, 0]),
    (r#"tidewaiter_leader{namespace="kube-system"}"#, [1, 0]),
    ("tidewaiter_registry_token_expiry_timestamp_seconds", [4_000_000, 0]),
    (r#"tidewaiter_registries{state="ready"}"#, [3, 0]),
    (r#"tidewaiter_registries{state="refused"}"#, [0, 0]),
    (
        r#"tidewaiter_cloud_sync_last_success_timestamp_seconds{kind="users"}"#,
        [4_000_000, 0],
    ),
    (r#"tidewaiter_cloud_sync_held{kind="users"}"#, [0, 0]),
    (r#"tidewaiter_cloud_sync_refused{kind="users"}"#, [0, 0]),
    (
        r#"tidewaiter_reconcile_errors_total{controller="pullsecret",class="rejected"}"#,
        [5, 0],
    ),
    ("tidewaiter_node_pools_last_sync_timestamp_seconds", [4_000_000, 0]),
    ("tidewaiter_node_pools_held", [0, 0]),
    (r#"tidewaiter_node_pool_decisions{decision="contradicted"}"#, [0, 0]),
    (
        r#"tidewaiter_reconcile_errors_total{controller="authorization-role-binding",class="denied"}"#,
        [5, 0],
    ),
    (r#"tidewaiter_role_rules_refused{reason="privileged"}"#, [0, 0]),
    (r#"tidewaiter_role_bindings_waiting{for="role"}"#, [0, 0]),
    (r#"tidewaiter_plugins{state="stalled"}"#, [0, 0]),
    (r#"tidewaiter_plugins{state="awaits_approval"}"#, [0, 0]),
    ("tidewaiter_plugin_objects_drifted", [0, 0]),
    (
        r#"tidewaiter_reconcile_errors_total{controller="plugin",class="denied"}"#,
        [5, 0],
    ),
    (
        r#"tidewaiter_reconcile_errors_total{controller="upgrade",class="drain"}"#,
        [5, 0],
    ),
    (r#"tidewaiter_upgrades{state="unhealthy"}"#, [0, 0]),
    (r#"tidewaiter_upgrades{state="upgrading"}"#, [0, 0]),
    (r#"tidewaiter_upgrades{state="soaking"}"#, [1, 0]),
    (r#"tidewaiter_upgrades{state="failed"}"#, [0, 0]),
    (r#"tidewaiter_upgrades{state="superseded"}"#, [1, 0]),
    (r#"tidewaiter_upgrades{state="window"}"#, [0, 0]),
    (r#"tidewaiter_upgrades{state="paused"}"#, [0, 0]),
    (r#"tidewaiter_upgrades{state="not_permitted"}"#, [0, 0]),
    (r#"tidewaiter_upgrade_nodes{state="done"}"#, [3, 0]),
    (r#"tidewaiter_upgrade_nodes{state="failed"}"#, [0, 0]),
    (r#"tidewaiter_upgrade_nodes{state="remaining"}"#, [3, 0]),
    // Agents elect no leader.
    (r#"tidewaiter_leader{namespace="tidewaiter-agent"}"#, [0, 0]),
    (r#"tidewaiter_agent_restores_total{file="authorized_keys"}"#, [5, 0]),
    ("tidewaiter_agent_applied", [1, 1]),
    ("tidewaiter_agent_removals_held", [0, 0]),
    ("tidewaiter_agent_keys_expiring", [0, 0]),
    ("tidewaiter_agent_refused_keys", [0, 0]),
    (r#"tidewaiter_agent_other_lines{kind="foreign"}"#, [0, 0]),
    ("tidewaiter_agent_break_glass_use_timestamp_seconds", [0, 0]),
    ("tidewaiter_agent_upgrade_script_refused", [0, 0]),
    ("tidewaiter_agent_unsigned_scripts_permitted", [0, 0]),
    ("tidewaiter_cloud_certificate_expires_seconds", [9_000_000, 9_000_000]),
    (r#"tidewaiter_cloud_requests_total{status="200"}"#, [7, 7]),
    (r#"tidewaiter_cloud_requests_total{status="503"}"#, [0, 0]),
    (r#"tidewaiter_cloud_audit_rows_dropped_total{kind="users"}"#, [0, 0]),
];

/// Each alert with what makes it fire: the value of a series of the first replica, just over the edge. None: of neither
/// replica.
const TROUBLE: [(&str, &str, Option<u32>); 60] = [
    (
        "ClusterValidationFailed",
        r#"tidewaiter_cluster_verdict{cluster_name="c",verdict="failed"}"#,
        Some(1),
    ),
    (
        "ClusterVerdictUnknown",
        r#"tidewaiter_cluster_observed{cluster_name="c",part="cloud"}"#,
        Some(0),
    ),
    (
        "ClusterVerdictOld",
        r#"tidewaiter_cluster_verdict_age_seconds{cluster_name="c"}"#,
        Some(121),
    ),
    (
        "ClusterVerdictAbsent",
        r#"tidewaiter_cluster_verdict_age_seconds{cluster_name="c"}"#,
        None,
    ),
    ("NodesNotReady", r#"kops_node_notReady{cluster_name="c"}"#, Some(1)),
    (
        "ControlPlanePodsMissing",
        r#"kops_pod_missing{cluster_name="c"}"#,
        Some(1),
    ),
    ("SystemPodsNotWell", r#"kops_pod_pending{cluster_name="c"}"#, Some(1)),
    ("SystemPodsNotWell", r#"kops_pod_notReady{cluster_name="c"}"#, Some(1)),
    ("SystemPodsNotWell", r#"kops_pod_unknown{cluster_name="c"}"#, Some(1)),
    (
        "ControlPlaneComponentUnhealthy",
        r#"kops_component_unhealthy{cluster_name="c"}"#,
        Some(1),
    ),
    (
        "InstanceGroupTooSmall",
        r#"tidewaiter_instance_group_target_instances{cluster_name="c",instance_group="g"}"#,
        Some(3),
    ),
    (
        "RollingUpdateNeeded",
        r#"tidewaiter_instance_group_outdated_instances{cluster_name="c",instance_group="g"}"#,
        Some(1),
    ),
    ("NodeForged", r#"tidewaiter_nodes{state="forged"}"#, Some(1)),
    ("NodesNotIdentified", r#"tidewaiter_nodes{state="refused"}"#, Some(1)),
    ("NodesNotIdentified", r#"tidewaiter_nodes{state="undefined"}"#, Some(1)),
    ("NodesNotIdentified", r#"tidewaiter_nodes{state="unanswered"}"#, Some(1)),
    ("NodesNotWritten", r#"tidewaiter_nodes{state="failed"}"#, Some(1)),
    (
        "UndecodableObjects",
        r#"tidewaiter_undecodable_objects{kind="NodeIdentity"}"#,
        Some(1),
    ),
    (
        "CacheStale",
        r#"tidewaiter_cache_stale_seconds{cache="node"}"#,
        Some(301),
    ),
    ("QuarantineHeld", "tidewaiter_quarantine_held", Some(2)),
    ("StateStoreProblems", "tidewaiter_state_store_problems", Some(1)),
    (
        "ControllerWithoutLeader",
        r#"tidewaiter_leader{namespace="kube-system"}"#,
        Some(0),
    ),
    (
        "ControllerWithoutLeader",
        r#"tidewaiter_leader{namespace="kube-system"}"#,
        Some(2),
    ),
    (
        "RegistryTokenExpiring",
        "tidewaiter_registry_token_expiry_timestamp_seconds",
        Some(14_400),
    ),
    ("RegistryNotReady", r#"tidewaiter_registries{state="refused"}"#, Some(1)),
    (
        "CloudSyncStalled",
        r#"tidewaiter_cloud_sync_last_success_timestamp_seconds{kind="users"}"#,
        Some(1),
    ),
    ("CloudSyncHeld", r#"tidewaiter_cloud_sync_held{kind="users"}"#, Some(1)),
    (
        "CloudSyncRefused",
        r#"tidewaiter_cloud_sync_refused{kind="users"}"#,
        Some(1),
    ),
    (
        "CoordinatorWritesFailing",
        r#"tidewaiter_reconcile_errors_total{controller="pullsecret",class="rejected"}"#,
        Some(1),
    ),
    (
        "NodePoolsStale",
        "tidewaiter_node_pools_last_sync_timestamp_seconds",
        Some(1),
    ),
    ("NodePoolsHeld", "tidewaiter_node_pools_held", Some(1)),
    (
        "NodePoolContradicted",
        r#"tidewaiter_node_pool_decisions{decision="contradicted"}"#,
        Some(1),
    ),
    (
        "CoordinatorWritesFailing",
        r#"tidewaiter_reconcile_errors_total{controller="authorization-role-binding",class="denied"}"#,
        Some(1),
    ),
    (
        "RoleRulesRefused",
        r#"tidewaiter_role_rules_refused{reason="privileged"}"#,
        Some(1),
    ),
    (
        "RoleBindingsWaiting",
        r#"tidewaiter_role_bindings_waiting{for="role"}"#,
        Some(1),
    ),
    ("PluginsStalled", r#"tidewaiter_plugins{state="stalled"}"#, Some(1)),
    (
        "PluginsAwaitApproval",
        r#"tidewaiter_plugins{state="awaits_approval"}"#,
        Some(1),
    ),
    ("PluginObjectsDrifted", "tidewaiter_plugin_objects_drifted", Some(1)),
    (
        "CoordinatorWritesFailing",
        r#"tidewaiter_reconcile_errors_total{controller="plugin",class="denied"}"#,
        Some(1),
    ),
    (
        "CoordinatorWritesFailing",
        r#"tidewaiter_reconcile_errors_total{controller="upgrade",class="drain"}"#,
        Some(1),
    ),
    ("UpgradeStuck", r#"tidewaiter_upgrades{state="unhealthy"}"#, Some(1)),
    ("UpgradeStuck", r#"tidewaiter_upgrades{state="upgrading"}"#, Some(1)),
    (
        "UpgradeNodesFailed",
        r#"tidewaiter_upgrade_nodes{state="failed"}"#,
        Some(1),
    ),
    ("UpgradeFailed", r#"tidewaiter_upgrades{state="failed"}"#, Some(1)),
    ("UpgradeWaiting", r#"tidewaiter_upgrades{state="window"}"#, Some(1)),
    ("UpgradeWaiting", r#"tidewaiter_upgrades{state="paused"}"#, Some(1)),
    (
        "UpgradeWaiting",
        r#"tidewaiter_upgrades{state="not_permitted"}"#,
        Some(1),
    ),
    (
        "AuthorizedKeysRestored",
        r#"tidewaiter_agent_restores_total{file="authorized_keys"}"#,
        Some(1),
    ),
    ("AuthorizedKeysNotApplied", "tidewaiter_agent_applied", Some(0)),
    ("UserRemovalHeld", "tidewaiter_agent_removals_held", Some(1)),
    ("UserKeysExpiring", "tidewaiter_agent_keys_expiring", Some(1)),
    ("UserKeysRefused", "tidewaiter_agent_refused_keys", Some(1)),
    (
        "ForeignKeys",
        r#"tidewaiter_agent_other_lines{kind="foreign"}"#,
        Some(1),
    ),
    (
        "BreakGlassUsed",
        "tidewaiter_agent_break_glass_use_timestamp_seconds",
        Some(600),
    ),
    (
        "UpgradeScriptRefused",
        "tidewaiter_agent_upgrade_script_refused",
        Some(1),
    ),
    (
        "UnsignedScriptsPermitted",
        "tidewaiter_agent_unsigned_scripts_permitted",
        Some(1),
    ),
    (
        "CloudCertificateExpiring",
        "tidewaiter_cloud_certificate_expires_seconds",
        Some(600_000),
    ),
    // The first certificate of ACME does not come.
    (
        "CloudCertificateExpiring",
        "tidewaiter_cloud_certificate_expires_seconds",
        Some(0),
    ),
    (
        "CloudRequestsFail",
        r#"tidewaiter_cloud_requests_total{status="503"}"#,
        Some(1),
    ),
    (
        "CloudAuditLogFull",
        r#"tidewaiter_cloud_audit_rows_dropped_total{kind="users"}"#,
        Some(1),
    ),
];

/// The minutes for which all is well, at the beginning and at the end.
const WELL: usize = 10;
/// The minutes for which the trouble lasts after the alert has begun to fire.
const LONGER: usize = 5;

/// The minutes for which an increase of a counter stays in the window of a rule.
const WINDOW: usize = 15;

/// Returns the number of minutes for which the condition of an alert must hold before it fires.
fn patience(alert: &Value) -> usize {
    let text = alert["for"].as_str().unwrap_or("0m");
    let (number, unit) = text.split_at(text.len() - 1);
    let minutes = match unit {
        "m" => 1,
        "h" => 60,
        "d" => 24 * 60,
        _ => panic!("{alert}"),
    };
    number.parse::<usize>().unwrap() * minutes
}

/// One value a minute: the healthy one, then the bad one for `trouble` minutes, then the healthy one again.
fn values(healthy: u32, bad: &str, trouble: usize) -> String {
    let bad = vec![bad.to_owned(); trouble];
    let (before, after) = (
        vec![healthy.to_string(); WELL],
        vec![healthy.to_string(); WELL + WINDOW],
    );
    [before, bad, after].concat().join(" ")
}

/// The same of a counter, which grows by `step` in each minute of trouble.
fn counts(healthy: u32, step: u32, trouble: usize) -> String {
    let last = healthy + step * u32::try_from(trouble).unwrap();
    let first = healthy + step;
    format!(
        "{healthy}x{} {first}+{step}x{} {last}x{}",
        WELL - 1,
        trouble - 1,
        WELL + WINDOW
    )
}

fn is_counter(series: &str) -> bool {
    series.contains("_total{")
}

/// A test of promtool: all is well, then there is this trouble, then all is well again.
fn test(alert: &str, patience: usize, series: &str, bad: Option<u32>) -> Value {
    let trouble = patience + LONGER;
    let mut input = Vec::new();
    for (healthy, values_of) in HEALTHY {
        for (replica, value) in values_of.into_iter().enumerate() {
            let is_it = healthy == series && replica == 0;
            let values = match bad {
                Some(step) if is_it && is_counter(series) => counts(value, step, trouble),
                Some(bad) if is_it => values(value, &bad.to_string(), trouble),
                None if healthy == series => values(value, "stale", trouble),
                _ => values(value, &value.to_string(), trouble),
            };
            let (name, labels) = healthy.split_once('{').unwrap_or((healthy, "}"));
            input.push(json!({"series": format!("{name}{{pod=\"{replica}\",{labels}"), "values": values}));
        }
    }
    let fires_at = WELL + patience;
    let lasts = if is_counter(series) { WINDOW } else { 0 };
    let mut looks = vec![
        (WELL - 1, false),
        (fires_at, true),
        (WELL + trouble - 1, true),
        (WELL + trouble + lasts, false),
    ];
    if patience > 0 {
        looks.push((fires_at - 1, false));
    }
    let looks = looks.into_iter().map(|(minute, fires)| {
        let firing = json!([{"labels": format!("{{alertname=\"{alert}\"}}"), "value": 1}]);
        json!({
            "expr": "count by (alertname) (ALERTS{alertstate=\"firing\"})",
            "eval_time": format!("{minute}m"),
            "exp_samples": if fires { firing } else { json!([]) },
        })
    });
    json!({
        "name": format!("{alert}: {series}"),
        "interval": "1m",
        "input_series": input,
        "promql_expr_test": looks.collect::<Vec<_>>(),
    })
}

/// A test of promtool: an upgrade is in progress, and a node is done shortly before it counts as stuck; then none is.
fn an_upgrade_that_gets_on(patience: usize) -> Value {
    let apart = patience - 5;
    let done: Vec<String> = (0..4).map(|node| format!("{node}x{apart}")).collect();
    let last = 3 * (apart + 1);
    let nodes = format!("{} 3x{}", done.join(" "), 2 * patience);
    let look = |minute: usize, firing: &Value| {
        json!({"expr": "count by (alertname) (ALERTS{alertstate=\"firing\", alertname=\"UpgradeStuck\"})",
            "eval_time": format!("{minute}m"), "exp_samples": firing})
    };
    let firing = json!([{"labels": "{alertname=\"UpgradeStuck\"}", "value": 1}]);
    json!({
        "name": "an upgrade that gets on",
        "interval": "1m",
        "input_series": [
            {"series": "tidewaiter_upgrades{pod=\"0\",state=\"upgrading\"}", "values": format!("1x{}", last + 2 * patience)},
            {"series": "tidewaiter_upgrade_nodes{pod=\"0\",state=\"done\"}", "values": nodes},
        ],
        "promql_expr_test": [
            look(last - 1, &json!([])),
            look(last + patience - 1, &json!([])),
            look(last + patience + 15, &firing),
        ],
    })
}

#[test]
fn each_alert_fires_in_its_trouble_and_no_other_one_does() {
    let rules = rules();
    let alerts = alerts(&rules);
    let names: BTreeSet<&str> = alerts.iter().map(|alert| alert["alert"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        TROUBLE.iter().map(|(alert, ..)| *alert).collect(),
        "an alert without a test, or a test of no alert"
    );
    let tests = TROUBLE.map(|(name, series, bad)| {
        assert!(HEALTHY.iter().any(|(healthy, _)| *healthy == series), "{series}");
        let alert = alerts.iter().find(|alert| alert["alert"] == name).unwrap();
        test(name, patience(alert), series, bad)
    });
    let stuck = alerts.iter().find(|alert| alert["alert"] == "UpgradeStuck").unwrap();
    let tests = [&tests[..], &[an_upgrade_that_gets_on(patience(stuck))]].concat();
    let scratch = Scratch::new("alerts");
    let file = json!({"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": tests});
    for (name, content) in [("rules.yaml", &rules), ("tests.yaml", &file)] {
        #[expect(clippy::disallowed_methods, reason = "nobody reads it yet")]
        std::fs::write(scratch.path().join(name), content.to_string()).unwrap();
    }
    let tested = promtool(scratch.path(), &["test", "rules", "tests.yaml"], "");
    let said = [tested.stdout, tested.stderr].concat();
    assert!(tested.status.success(), "{}", String::from_utf8_lossy(&said));
}
