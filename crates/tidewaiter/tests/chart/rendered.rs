//! The objects that the chart renders, and the values that it refuses, without a cluster.

use std::fs;

use serde_json::{Value, json};
use similar::TextDiff;

use crate::{SETS, chart, deploy, helm, here, named, objects, run, template, template_of, values_of};

#[test]
fn lint_finds_nothing() {
    for set in SETS {
        let mut lint = helm();
        lint.args(["lint", "--strict"])
            .arg(chart())
            .arg("--values")
            .arg(values_of(set));
        run(&mut lint, "").output();
    }
    run(helm().args(["lint", "--strict"]).arg(chart()), "").output();
}

#[test]
fn each_value_set_renders_its_golden_file() {
    for set in SETS {
        let rendered = template_of(&values_of(set), &["--set", "crds.enabled=false"]).output();
        let path = here().join("golden").join(format!("{set}.yaml"));
        let golden = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            rendered == golden,
            "{set}: {}\nIf this is intended: cd crates/tidewaiter/tests/chart && helm template tidewaiter ../../../../deploy/chart \
             --namespace default --set crds.enabled=false --values values/{set}.yaml > golden/{set}.yaml",
            TextDiff::from_lines(&golden, &rendered).unified_diff()
        );
    }
}

#[test]
fn a_cloud_without_a_certificate_needs_no_secret_for_it() {
    let mut settings = json!({
        "publicUrl": "https://c.example.com", "database": "postgres://a@b/c", "trustedProxies": ["10.0.0.0/8"],
    });
    for is_mounted in [true, false] {
        let values = json!({"image": {"repository": "a/b"}, "cloud": {"enabled": true, "settings": settings}});
        let rendered = objects(&template(&values, &[]).output());
        let pod = named(&rendered, "Deployment", "tidewaiter-cloud")["spec"]["template"]["spec"].to_string();
        assert_eq!(pod.contains("/etc/tidewaiter/tls"), is_mounted, "{pod}");
        assert_eq!(pod.contains("tidewaiter-cloud-tls"), is_mounted, "{pod}");
        (settings["tlsCertificate"], settings["tlsKey"]) = (Value::Null, Value::Null);
    }
}

/// A definition that is deleted takes its objects with it.
#[test]
fn a_role_brings_its_definitions_which_helm_keeps() {
    for (set, folder) in [
        ("controller", "crds"),
        ("coordinator", "crds/coordinator"),
        ("agent", "crds/agent"),
        ("cloud", ""),
    ] {
        let rendered = objects(&template_of(&values_of(set), &[]).output());
        let definitions = rendered
            .iter()
            .filter(|object| object["kind"] == "CustomResourceDefinition");
        let definitions: Vec<Value> = definitions.cloned().collect();
        let mut files = Vec::new();
        if !folder.is_empty() {
            let entries = fs::read_dir(deploy().join(folder)).unwrap();
            files = entries.map(|entry| entry.unwrap().path()).collect();
            files.retain(|path| path.is_file());
        }
        assert_eq!(definitions.len(), files.len(), "{set}");
        for file in files {
            let mut expected: Value = serde_saphyr::from_str(&fs::read_to_string(file).unwrap()).unwrap();
            expected["metadata"]["annotations"] = json!({"helm.sh/resource-policy": "keep"});
            assert!(definitions.contains(&expected), "{}", expected["metadata"]["name"]);
        }
    }
}

#[test]
fn namespaces_are_kept_and_not_rendered_for_the_namespace_of_the_release() {
    for (set, namespace) in [("coordinator", "containership-core"), ("cloud", "acme-cloud")] {
        let elsewhere = objects(&template_of(&values_of(set), &[]).output());
        let object = named(&elsewhere, "Namespace", namespace);
        assert_eq!(object["metadata"]["annotations"]["helm.sh/resource-policy"], "keep");
        let inside = objects(&template_of(&values_of(set), &["--namespace", namespace]).output());
        assert!(inside.iter().all(|object| object["kind"] != "Namespace"), "{set}");
        assert_eq!(inside.len(), elsewhere.len() - 1);
    }
}

#[test]
fn pods_restart_when_the_settings_change_and_not_otherwise() {
    let checksum = |arguments: &[&str]| {
        let rendered = objects(&template_of(&values_of("coordinator"), arguments).output());
        let deployment = named(&rendered, "Deployment", "tidewaiter-coordinator");
        deployment["spec"]["template"]["metadata"]["annotations"]["checksum/settings"].clone()
    };
    let before = checksum(&[]);
    assert!(before.is_string());
    assert_eq!(checksum(&["--set", "coordinator.replicas=3"]), before);
    assert_ne!(
        checksum(&["--set", "coordinator.settings.allowPrivileged=true"]),
        before
    );
    assert_eq!(checksum(&["--set", "restartOnChange=false"]), Value::Null);
}

/// The variables of other Services would be settings that nobody wrote.
#[test]
fn no_pod_gets_the_variables_of_services() {
    for set in SETS {
        for object in objects(&template_of(&values_of(set), &[]).output()) {
            let spec = match object["kind"].as_str().unwrap() {
                "Pod" => &object["spec"],
                "Deployment" | "DaemonSet" => &object["spec"]["template"]["spec"],
                _ => continue,
            };
            assert_eq!(
                spec["enableServiceLinks"], false,
                "{set}: {}",
                object["metadata"]["name"]
            );
        }
    }
}

/// Each replica of both roles is scraped, and the alerts on the cluster need the controller: `absent` would fire
/// without it.
#[test]
fn monitoring_has_what_belongs_to_the_roles() {
    let monitoring = |set: &str| {
        let switches = ["monitors", "alerts", "dashboard"].map(|part| format!("monitoring.{part}.enabled=true"));
        let rendered = template_of(&values_of(set), &["--set", &switches.join(",")]).output();
        let objects = objects(&rendered).into_iter();
        let found = objects.filter(|object| {
            let kind = object["kind"].as_str().unwrap();
            kind.ends_with("Monitor")
                || kind == "PrometheusRule"
                || object["metadata"]["name"] == "tidewaiter-dashboard"
        });
        let found: Vec<Value> = found.collect();
        let kinds = found.iter().map(|object| {
            let metadata = &object["metadata"];
            [&object["kind"], &metadata["namespace"]].map(|text| text.as_str().unwrap().to_owned())
        });
        let mut kinds: Vec<[String; 2]> = kinds.collect();
        kinds.sort();
        (kinds, found)
    };
    let (kinds, found) = monitoring("controller");
    let place = "kube-system".to_owned();
    let expected = ["ConfigMap", "PrometheusRule", "ServiceMonitor"].map(|kind| [kind.to_owned(), place.clone()]);
    assert_eq!(kinds, expected);
    assert!(json!(found).to_string().contains("ClusterVerdictAbsent"));
    let dashboard = fs::read_to_string(deploy().join("monitoring/grafana-dashboard.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let shown = named(&found, "ConfigMap", "tidewaiter-dashboard")["data"]["grafana-dashboard.json"].as_str();
    assert_eq!(serde_json::from_str::<Value>(shown.unwrap()).unwrap(), dashboard);

    let (kinds, found) = monitoring("coordinator");
    let place = "containership-core".to_owned();
    let expected = ["ConfigMap", "PodMonitor", "PrometheusRule"].map(|kind| [kind.to_owned(), place.clone()]);
    assert_eq!(kinds, expected);
    let rule = named(&found, "PrometheusRule", "tidewaiter-coordinator").to_string();
    assert!(
        rule.contains("CloudSyncStalled") && rule.contains("ControllerWithoutLeader"),
        "{rule}"
    );
    assert!(!rule.contains("absent("), "{rule}");

    let (kinds, found) = monitoring("cloud");
    let place = "acme-cloud".to_owned();
    let expected = ["ConfigMap", "PodMonitor", "PrometheusRule"].map(|kind| [kind.to_owned(), place.clone()]);
    assert_eq!(kinds, expected);
    let rule = named(&found, "PrometheusRule", "tidewaiter-cloud").to_string();
    assert!(
        rule.contains("CloudCertificateExpiring") && !rule.contains("CloudSyncStalled"),
        "{rule}"
    );
}

#[test]
fn the_agent_is_refused_where_tokens_do_not_name_their_node() {
    let values = json!({"image": {"repository": "registry.example.com/tidewaiter"}, "agent": {"enabled": true}});
    template(&values, &["--kube-version", "1.32.0"]).output();
    let refusal = template(&values, &["--kube-version", "1.31.9"]).refusal();
    assert!(refusal.contains("the agent needs 1.32 or later"), "{refusal}");
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let text = fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}
