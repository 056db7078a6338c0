//! What the chart renders, and what it refuses, without a cluster.

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

/// Each replica of both roles is scraped, and the alerts on the cluster need the controller: `absent` would fire without it.
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

    let (kinds, _) = monitoring("cloud");
    assert_eq!(kinds, [["ConfigMap".to_owned(), "acme-cloud".to_owned()]]);
}

#[test]
fn the_agent_is_refused_where_tokens_do_not_name_their_node() {
    let values = json!({"image": {"repository": "registry.example.com/tidewaiter"}, "agent": {"enabled": true}});
    template(&values, &["--kube-version", "1.32.0"]).output();
    let refusal = template(&values, &["--kube-version", "1.31.9"]).refusal();
    assert!(refusal.contains("the agent needs 1.32 or later"), "{refusal}");
}

/// Each refusal names the value and the remedy.
#[test]
fn values_that_cannot_be_meant_are_refused_by_name() {
    let image = json!({"repository": "registry.example.com/tidewaiter"});
    let cloud =
        json!({"enabled": true, "settings": {"publicUrl": "https://c.example.com", "database": "postgres://a@b/c"}});
    let with = |pointer: &str, value: Value| {
        let mut cloud = cloud.clone();
        *cloud.pointer_mut(pointer).unwrap() = value;
        json!({"image": image, "cloud": cloud})
    };
    for (values, wanted) in [
        (
            json!({"image": image}),
            &[
                "controller.enabled",
                "coordinator.enabled",
                "agent.enabled",
                "cloud.enabled",
            ][..],
        ),
        (
            json!({"controller": {"enabled": true}}),
            &["image.repository is not set", "docs/install.md"],
        ),
        (
            json!({"image": image, "controller": {"enabled": true, "settings": {"healthAddress": "0.0.0.0:1"}}}),
            &["controller.settings.healthAddress", "remove it"],
        ),
        (
            json!({"image": image, "coordinator": {"enabled": true}}),
            &[
                "coordinator.settings.cloud.apiBaseUrl is not set",
                "docs/coordinator.md",
            ],
        ),
        (
            json!({"image": image, "coordinator": {"settings": {"lease": {"namespace": "default", "name": "a"}}}}),
            &["/coordinator/settings/lease/namespace", "containership-core"],
        ),
        (
            with("/settings/publicUrl", json!("")),
            &["cloud.settings.publicUrl is not set"],
        ),
        (
            with("/settings/database", json!("sqlite:///data/cloud.db")),
            &["/cloud/settings/database", "postgres"],
        ),
        (
            json!({"image": image, "cloud": cloud, "controller": {"enabled": true, "env": {"HCLOUD_TOKEN": "a"}}}),
            &["controller.env.HCLOUD_TOKEN", "controller.hetznerToken"],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"onStop": "delete"}}}),
            &["/agent/settings/onStop", "'keep', 'clear'"],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"ownerUid": -1}}}),
            &["/agent/settings/ownerUid"],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"pinnedFolder": "/etc/containership/trust"}}}),
            &[
                "agent.settings.pinnedFolder is /etc/containership/trust",
                "agent.settings.folder",
            ],
        ),
        (
            json!({"image": image, "agent": {"enabled": true, "settings": {"stateFolder": "/srv", "pinnedFolder": "/srv"}}}),
            &["agent.settings.pinnedFolder is /srv", "agent.settings.stateFolder"],
        ),
    ] {
        let refusal = template(&values, &[]).refusal();
        for wanted in wanted {
            assert!(refusal.contains(wanted), "no {wanted} in {refusal}");
        }
    }
    let class = json!({"cloud": {"priorityClass": {"name": "system-cloud"}}});
    let mut values = with("/enabled", json!(true));
    values["cloud"]["priorityClass"] = class["cloud"]["priorityClass"].clone();
    let refusal = template(&values, &[]).refusal();
    assert!(
        refusal.contains("cloud.priorityClass.name is system-cloud"),
        "{refusal}"
    );
}

/// The agent would not start.
#[test]
fn upgrade_scripts_are_refused_where_their_files_do_not_belong_to_root() {
    let agent = |settings: Value, env: Value| {
        let agent = json!({"enabled": true, "settings": settings, "env": env});
        template(
            &json!({"image": {"repository": "registry.example.com/tidewaiter"}, "agent": agent}),
            &[],
        )
    };
    let none = json!({});
    let both = json!({"ownerUid": 2_000_000, "upgrades": "enabled"});
    for (settings, env) in [
        (both, none.clone()),
        (
            json!({"upgrades": "enabled"}),
            json!({"TIDEWAITER_OWNER_UID": "2000000"}),
        ),
        (
            json!({"ownerUid": 2_000_000}),
            json!({"TIDEWAITER_UPGRADES": "enabled"}),
        ),
    ] {
        let refusal = agent(settings, env).refusal();
        for wanted in [
            "agent.settings.upgrades is enabled",
            "agent.settings.ownerUid is 2000000",
            "Set ownerUid to 0, or upgrades to disabled",
        ] {
            assert!(refusal.contains(wanted), "no {wanted} in {refusal}");
        }
    }
    for settings in [
        json!({"ownerUid": 2_000_000, "upgrades": "disabled"}),
        json!({"ownerUid": 0, "ownerGid": 2000, "upgrades": "enabled"}),
    ] {
        agent(settings, none.clone()).output();
    }
}

#[test]
fn the_chart_has_the_version_of_the_program() {
    let text = fs::read_to_string(chart().join("Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
}
