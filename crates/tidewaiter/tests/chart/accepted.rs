//! The response of a real API server to the rendered objects, and of the roles to their settings.

use std::process::Command;

use serde_json::{Value, json};
use tidewaiter_testkit::{ControlPlane, Scratch};

use crate::{Ran, SETS, chart, kubectl, named, objects, run, template, template_of, values_of, write};

/// Everything that can be switched on.
const MONITORING: &str =
    "monitoring.monitors.enabled=true,monitoring.alerts.enabled=true,monitoring.dashboard.enabled=true";

/// The kinds of the Prometheus Operator, without their schemas, and the namespaces of the roles.
pub fn prepare(cluster: &ControlPlane) {
    let kinds = ["PodMonitor", "ServiceMonitor", "PrometheusRule"].map(|kind| {
        let plural = format!("{}s", kind.to_lowercase());
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{plural}.monitoring.coreos.com")},
            "spec": {
                "group": "monitoring.coreos.com",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural},
                "versions": [{"name": "v1", "served": true, "storage": true, "schema": schema}],
            },
        })
    });
    let kinds = kinds.map(|kind| kind.to_string()).join("\n---\n");
    kubectl(cluster, &["apply", "-f", "-"], &kinds).output();
    kubectl(cluster, &["wait", "--for=condition=Established", "crd", "--all"], "").output();
}

/// Has the API server check each object, unknown fields included, and change nothing. The namespaces of the objects are
/// created. The pods of `helm test` are left out: they need their service accounts.
pub fn dry_run(cluster: &ControlPlane, rendered: &str) -> Ran {
    let namespaces = objects(rendered)
        .into_iter()
        .filter_map(|object| Some(object["metadata"]["namespace"].as_str()?.to_owned()));
    let namespaces =
        namespaces.map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}));
    let namespaces: Vec<String> = namespaces.map(|namespace| namespace.to_string()).collect();
    let create = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    kubectl(cluster, &create, &namespaces.join("\n---\n")).output();
    let check = ["--dry-run=server", "--validate=strict"];
    kubectl(cluster, &[&create[..], &check].concat(), rendered)
}

#[tokio::test]
async fn the_api_server_accepts_every_object_of_every_value_set() {
    let cluster = ControlPlane::start().await;
    prepare(&cluster);
    for set in SETS {
        let rendered = template_of(&values_of(set), &["--skip-tests", "--set", MONITORING]).output();
        let said = dry_run(&cluster, &rendered).output();
        assert_eq!(said.lines().count(), objects(&rendered).len(), "{set}: {said}");
    }
    let rendered = template_of(&chart().join("raw/values.yaml"), &["--skip-tests", "--set", MONITORING]).output();
    dry_run(&cluster, &rendered).output();
    // That it would refuse something else.
    let wrong = rendered.replace("maxUnavailable: 1", "maxUnavailble: 1");
    let refusal = dry_run(&cluster, &wrong).refusal();
    assert!(refusal.contains("maxUnavailble"), "{refusal}");
}

/// Texts that YAML would read as numbers or truth values.
#[tokio::test]
async fn names_that_look_like_numbers_stay_texts() {
    let cluster = ControlPlane::start().await;
    let env = json!({"NO": "1e5", "on": "true", "y": {"secret": "0x1f", "key": "7"}});
    let common = json!({"enabled": true, "env": env, "nodeSelector": {"1": "true"}});
    let role = |more: Value| {
        let mut role = common.clone();
        role.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        role
    };
    let ids = "11111111-1111-4111-8111-111111111111";
    let api = json!({"apiBaseUrl": "https://cloud.example.com", "organizationId": ids, "clusterId": ids});
    let settings = json!({"cloud": api, "lease": {"name": "1e5"}, "rbacCeiling": "123",
        "registries": {"pullSecretServiceAccounts": ["123"]}});
    let database = json!({"publicUrl": "https://cloud.example.com", "database": "postgres://a@b/c"});
    let values = json!({
        "image": {"repository": "1", "tag": "30", "pullSecrets": ["123"]},
        "controller": role(json!({"kopsConfigMap": "123", "priorityClassName": "123", "settings": {"lease": {"name": "1e5"}}})),
        "agent": role(json!({"priorityClassName": "123"})),
        "coordinator": role(json!({"settings": settings, "secrets": {"cloud": "123", "tls": "1e5"}, "priorityClass": {"name": "123"},
            "service": {"annotations": {"1": "true"}}})),
        "cloud": role(json!({"settings": database, "namespace": "123", "priorityClass": {"name": "1e5"},
            "secrets": {"keys": "1", "sealing": "2", "database": "3", "tls": "4"}})),
    });
    let rendered = template(&values, &["--skip-tests"]).output();
    dry_run(&cluster, &rendered).output();
    let deployment = named(&objects(&rendered), "Deployment", "tidewaiter-cloud").clone();
    assert_eq!(deployment["metadata"]["namespace"], "123");
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"][0]["image"], "1:30");
}

/// The pods of coordinator and cloud. The controller needs the network of its node.
#[tokio::test]
async fn pods_are_restricted_wherever_the_role_allows() {
    let cluster = ControlPlane::start().await;
    let name = json!({"name": "restricted", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}});
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": name});
    let account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "pod", "namespace": "restricted"}});
    kubectl(&cluster, &["apply", "-f", "-"], &format!("{namespace}\n---\n{account}")).output();
    let admit = |workload: &Value| {
        let mut spec = workload["spec"]["template"]["spec"].clone();
        spec["serviceAccountName"] = "pod".into();
        // These classes do not exist here.
        spec.as_object_mut().unwrap().remove("priorityClassName");
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "restricted"}, "spec": spec});
        kubectl(&cluster, &["create", "--dry-run=server", "-f", "-"], &pod.to_string())
    };
    for (set, role) in [
        ("coordinator", "coordinator"),
        ("limited", "coordinator"),
        ("cloud", "cloud"),
    ] {
        let rendered = objects(&template_of(&values_of(set), &[]).output());
        admit(named(&rendered, "Deployment", &format!("tidewaiter-{role}"))).output();
    }
    for set in ["controller", "hetzner"] {
        let rendered = objects(&template_of(&values_of(set), &[]).output());
        let refusal = admit(named(&rendered, "DaemonSet", "tidewaiter-controller")).refusal();
        let (_, reasons) = refusal
            .split_once("restricted:latest\": ")
            .unwrap_or_else(|| panic!("{refusal}"));
        assert!(reasons.starts_with("host namespaces"), "{refusal}");
        for other in [
            "runAsNonRoot",
            "seccomp",
            "capabilities",
            "allowPrivilegeEscalation",
            "volume",
        ] {
            assert!(!refusal.contains(other), "{refusal}");
        }
    }
}

#[test]
fn each_role_accepts_the_settings_that_are_rendered_for_it() {
    let scratch = Scratch::new("chart-settings");
    let kops = scratch.path().join("kops.yaml");
    write(
        &kops,
        "clusterName: c.example.com\ncloud: aws\nconfigBase: s3://state/c.example.com\n",
    );
    let kops = format!("--conf={}", kops.display());
    for (set, role, command) in [
        ("hetzner", "controller", &["controller", &kops][..]),
        ("coordinator", "coordinator", &["coordinator"]),
        ("limited", "coordinator", &["coordinator"]),
        ("agent", "agent", &["agent"]),
        ("upgrades", "agent", &["agent"]),
        ("cloud", "cloud", &["cloud", "serve"]),
    ] {
        let rendered = objects(&template_of(&values_of(set), &[]).output());
        let map = named(&rendered, "ConfigMap", &format!("tidewaiter-{role}"));
        let settings = map["data"]["settings.yaml"].as_str().unwrap();
        let file = scratch.path().join(format!("{set}.yaml"));
        let print = |text: &str| {
            write(&file, text);
            let mut program = Command::new(env!("CARGO_BIN_EXE_tidewaiter"));
            program
                .env_clear()
                .args(command)
                .arg("--print-config")
                .arg("--settings")
                .arg(&file);
            run(&mut program, "")
        };
        let printed: Value = serde_saphyr::from_str(&print(settings).output()).unwrap();
        let rendered: Value = serde_saphyr::from_str(settings).unwrap();
        assert_contains(&printed, &rendered, set);
        assert!(
            print(&format!("{settings}\nunknownSetting: 1\n"))
                .refusal()
                .contains("unknownSetting")
        );
    }
}

/// Every setting of the file is in effect.
fn assert_contains(printed: &Value, rendered: &Value, path: &str) {
    if let Some(fields) = rendered.as_object() {
        for (name, value) in fields {
            assert_contains(&printed[name], value, &format!("{path}.{name}"));
        }
    } else {
        let text = |value: &Value| value.to_string().trim_end_matches(['/', '"']).to_owned();
        assert_eq!(text(printed), text(rendered), "{path}");
    }
}
