//! A release from its installation to its end, on a real API server.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tidewaiter_testkit::ControlPlane;

use crate::accepted::prepare;
use crate::{Ran, chart, deploy, helm_in, kubectl, run, values_of, write};

/// The remains of the older version's definition.
const OLD: &str = "What the column showed before";
const NEW: &str = "The name of the user";

fn helm(cluster: &ControlPlane, words: &str, set: &str, chart: &Path) -> Ran {
    let mut command = helm_in(cluster);
    command
        .args(words.split(' '))
        .arg(chart)
        .arg("--values")
        .arg(values_of(set));
    run(&mut command, "")
}

fn get(cluster: &ControlPlane, words: &str) -> String {
    let arguments: Vec<&str> = ["get"].into_iter().chain(words.split(' ')).collect();
    kubectl(cluster, &arguments, "").output()
}

/// The chart as an older version had it: another column of User.
fn older(cluster: &ControlPlane) -> PathBuf {
    let folder = cluster.folder().join("older");
    let copied = Command::new("cp").arg("-r").args([&chart(), &folder]).status().unwrap();
    assert!(copied.success());
    let users = folder.join("files/crds/coordinator/users.yaml");
    let text = fs::read_to_string(&users).unwrap();
    assert!(text.contains(NEW), "{text}");
    write(&users, &text.replace(NEW, OLD));
    folder
}

const USER: &str = r#"{"apiVersion": "containership.io/v3", "kind": "User", "metadata": {"name": "33333333-3333-4333-8333-333333333333", "namespace": "containership-core"},
    "spec": {"id": "33333333-3333-4333-8333-333333333333", "name": "Alice", "sshKeys": []}}"#;

#[tokio::test]
async fn a_release_is_upgraded_rolled_back_and_uninstalled_and_the_custom_resources_stay() {
    let cluster = ControlPlane::start().await;
    let column = || {
        get(
            &cluster,
            "crd users.containership.io -o jsonpath={.spec.versions[0].additionalPrinterColumns[0].description}",
        )
    };
    let replicas = || {
        get(
            &cluster,
            "-n containership-core deployment tidewaiter-coordinator -o jsonpath={.spec.replicas}",
        )
    };
    let old = older(&cluster);
    let notes = helm(&cluster, "install one", "coordinator", &old).output();
    for wanted in [
        "create secret generic tidewaiter-coordinator-cloud",
        "helm test one -n default",
    ] {
        assert!(notes.contains(wanted), "{notes}");
    }
    assert_eq!((column().as_str(), replicas().as_str()), (OLD, "2"));
    kubectl(&cluster, &["wait", "--for=condition=Established", "crd", "--all"], "").output();
    kubectl(&cluster, &["create", "-f", "-"], USER).output();

    helm(
        &cluster,
        "upgrade one --set coordinator.replicas=3",
        "coordinator",
        &chart(),
    )
    .output();
    assert_eq!((column().as_str(), replicas().as_str()), (NEW, "3"));

    run(helm_in(&cluster).args(["rollback", "one", "1"]), "").output();
    assert_eq!((column().as_str(), replicas().as_str()), (OLD, "2"));
    get(
        &cluster,
        "-n containership-core user 33333333-3333-4333-8333-333333333333",
    );

    // A value set without the role removes its pods, as the end of the release does.
    run(helm_in(&cluster).args(["uninstall", "one"]), "").output();
    let left = get(
        &cluster,
        "-A -o name deployments,services,serviceaccounts,configmaps,clusterroles,clusterrolebindings,roles,rolebindings,\
        networkpolicies,poddisruptionbudgets,priorityclasses",
    );
    assert!(!left.contains("tidewaiter"), "{left}");
    get(
        &cluster,
        "-n containership-core user 33333333-3333-4333-8333-333333333333",
    );

    // The same release takes back what it left.
    helm(&cluster, "install one", "coordinator", &chart()).output();
    assert_eq!((column().as_str(), replicas().as_str()), (NEW, "2"));
    get(
        &cluster,
        "-n containership-core user 33333333-3333-4333-8333-333333333333",
    );
}

#[tokio::test]
async fn a_second_release_has_other_roles_or_is_refused() {
    let cluster = ControlPlane::start().await;
    helm(
        &cluster,
        "install one --namespace first --create-namespace",
        "controller",
        &chart(),
    )
    .output();
    let refusal = helm(
        &cluster,
        "install two --namespace second --create-namespace",
        "hetzner",
        &chart(),
    )
    .refusal();
    for wanted in [
        "the release first/one already has the controller",
        "its Lease",
        "controller.enabled=false",
    ] {
        assert!(refusal.contains(wanted), "no {wanted} in {refusal}");
    }
    helm(
        &cluster,
        "install two --namespace second --create-namespace",
        "coordinator",
        &chart(),
    )
    .output();
    // Into the namespace of its role.
    helm(
        &cluster,
        "install one --namespace acme-cloud --create-namespace",
        "cloud",
        &chart(),
    )
    .output();
    let other = "--set cloud.namespace=other-cloud,cloud.priorityClass.name=other-cloud";
    helm(
        &cluster,
        &format!("install two --namespace other-cloud --create-namespace {other}"),
        "cloud",
        &chart(),
    )
    .output();
    let refusal = helm(&cluster, "install three", "cloud", &chart()).refusal();
    assert!(
        refusal.contains("acme-cloud/one already has the cloud in the namespace acme-cloud"),
        "{refusal}"
    );
    let clouds = get(&cluster, "-A deployments -o jsonpath={.items[*].metadata.namespace}");
    assert_eq!(clouds, "acme-cloud containership-core other-cloud");
}

/// docs/install.md, from kubectl to Helm: the commands of that section, with the values of a test.
#[tokio::test]
async fn manifests_that_kubectl_applied_become_a_release_as_the_documentation_says() {
    let cluster = ControlPlane::builder().with_controller_manager().start().await;
    prepare(&cluster);
    for folder in ["crds/coordinator", "coordinator"] {
        let folder = deploy().join(folder);
        kubectl(&cluster, &["apply", "-f", folder.to_str().unwrap()], "").output();
    }
    let refusal = helm(&cluster, "install one", "limited", &chart()).refusal();
    assert!(refusal.contains("exists and cannot be imported"), "{refusal}");

    let page = fs::read_to_string(deploy().join("../docs/install.md")).unwrap();
    let command = |start: &str| {
        let found = page
            .lines()
            .find_map(|line| Some(line.trim().strip_prefix("$ ")?).filter(|line| line.starts_with(start)));
        found
            .unwrap_or_else(|| panic!("docs/install.md has no command {start}"))
            .to_owned()
    };
    let wait = |words: &str| {
        let words = format!("-n containership-core wait --timeout=3m {words}");
        kubectl(&cluster, &words.split(' ').collect::<Vec<_>>(), "").output()
    };
    wait("deployment/tidewaiter-coordinator --for=jsonpath={.status.observedGeneration}=1");
    let pods = get(&cluster, "-n containership-core -o name replicasets");
    let orphan = command("kubectl -n containership-core delete deployment");
    let arguments: Vec<&str> = orphan.split(' ').skip(1).collect();
    kubectl(&cluster, &arguments, "").output();
    let install = command("helm install tidewaiter deploy/chart --values values.yaml --take-ownership");
    let flags = install.split_once("values.yaml ").unwrap().1;
    helm(&cluster, &format!("install one {flags}"), "limited", &chart()).output();
    let ports = "-n containership-core deployment tidewaiter-coordinator -o jsonpath={.spec.template.spec.containers[0].ports[*].containerPort}";
    assert_eq!(get(&cluster, ports), "3986 3984 8443");
    // The pods have an owner again, which replaces them one by one.
    let uid = get(
        &cluster,
        "-n containership-core deployment tidewaiter-coordinator -o jsonpath={.metadata.uid}",
    );
    wait(&format!(
        "{} --for=jsonpath={{.metadata.ownerReferences[0].uid}}={uid}",
        pods.trim()
    ));
}
