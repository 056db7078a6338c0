use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::*;

/// A rule in short: `verbs groups resources`, or `verbs path`; lists are separated by commas, and `core` is the core
/// group.
fn rule(text: &str) -> PolicyRule {
    let words: Vec<Vec<&str>> = text.split(' ').map(|list| list.split(',').collect()).collect();
    let rule = match &words[..] {
        [verbs, paths] => json!({"verbs": verbs, "nonResourceURLs": paths}),
        [verbs, groups, resources] => {
            let groups: Vec<&str> = groups.iter().map(|it| if *it == "core" { "" } else { it }).collect();
            json!({"verbs": verbs, "apiGroups": groups, "resources": resources, "resourceNames": ["kubernetes.io/mine"]})
        }
        _ => panic!("{text}"),
    };
    serde_json::from_value(rule).unwrap()
}

/// The narrowest scope in which the rule amounts to full control, and as what.
fn judged(text: &str) -> Option<(Scope, &'static str)> {
    let scopes = [Scope::Namespace, Scope::SystemNamespace, Scope::Cluster];
    let found = scopes
        .into_iter()
        .find_map(|scope| Some((scope, full_control(&rule(text), scope)?.permission)));
    if let Some((narrowest, _)) = found {
        let wider = scopes.into_iter().filter(|scope| *scope >= narrowest);
        assert!(
            wider
                .into_iter()
                .all(|scope| full_control(&rule(text), scope).is_some()),
            "{text}"
        );
    }
    found
}

fn amounts(text: &str, scope: Scope, permission: &str) {
    let (found, words) = judged(text).unwrap_or_else(|| panic!("{text} is permitted"));
    assert!(
        found == scope && words.contains(permission),
        "{text}: {found:?} {words}"
    );
}

#[test]
fn paths_of_the_api_server_that_amount_to_full_control() {
    for path in ["*", "/*", "/logs/kube-apiserver.log", "/l*", "/logs", "/debug"] {
        amounts(&format!("get {path}"), Scope::Cluster, "path");
    }
    amounts("put /debug/flags/v", Scope::Cluster, "path");
}

#[test]
fn what_amounts_to_full_control_and_from_which_scope() {
    const ALL_VERBS: &str = "get,list,watch,create,update,patch,delete,deletecollection";
    let (any, system) = (Scope::Namespace, Scope::SystemNamespace);
    for (text, scope, permission) in [
        ("* * *", any, "every verb on every resource"),
        ("* apps *", any, "every verb on every resource"),
        (&format!("{ALL_VERBS} * *"), any, "tokens of service accounts"),
        (&format!("{ALL_VERBS} core *"), any, "tokens of service accounts"),
        (&format!("{ALL_VERBS} apps *"), system, "run pods"),
        (
            &format!("{ALL_VERBS} example.com *"),
            system,
            "every resource of an API group",
        ),
        ("* core pods,secrets,services,configmaps", system, "Secrets"),
        ("escalate rbac.authorization.k8s.io clusterroles", any, "escalate"),
        ("* rbac.authorization.k8s.io roles", any, "escalate"),
        ("bind * clusterroles", any, "bind"),
        ("impersonate core users", any, "impersonate"),
        ("impersonate core serviceaccounts", any, "impersonate"),
        ("* core serviceaccounts", any, "impersonate"),
        (
            "impersonate authentication.k8s.io userextras/scopes",
            any,
            "impersonate",
        ),
        ("impersonate authentication.k8s.io */scopes", any, "impersonate"),
        ("* * */scopes", any, "impersonate"),
        ("impersonate authentication.k8s.io userextras/scale", any, "impersonate"),
        ("impersonate:user-info authentication.k8s.io users", any, "impersonate"),
        ("* authentication.k8s.io *", any, "every verb"),
        ("create core serviceaccounts/token", any, "tokens"),
        ("create core */token", any, "tokens"),
        ("get core nodes/proxy", any, "nodes/proxy"),
        ("get core */proxy", any, "nodes/proxy"),
        ("get,list * *", any, "nodes/proxy"),
        ("get core secrets", system, "Secrets"),
        ("create core secrets", system, "Secrets"),
        ("delete core secrets", system, "Secrets"),
        ("deletecollection core secrets", system, "Secrets"),
        ("create core pods", system, "run pods"),
        ("patch core pods", system, "run pods"),
        ("update core */ephemeralcontainers", system, "run pods"),
        ("patch * deployments", system, "run pods"),
        ("create batch jobs", system, "run pods"),
        ("patch apps controllerrevisions", system, "run pods"),
        ("update tidewaiter.dev cloudsyncs/status", system, "Tidewaiter"),
        ("create core pods/exec", system, "commands"),
        ("get core pods/exec", system, "commands"),
        ("create core */attach", system, "commands"),
        ("create core configmaps", system, "ConfigMaps"),
        ("create coordination.k8s.io leases", system, "Leases"),
        ("update coordination.k8s.io leases", system, "Leases"),
        ("patch coordination.k8s.io leases", system, "Leases"),
        ("delete coordination.k8s.io leases", system, "Leases"),
        ("deletecollection coordination.k8s.io leases", system, "Leases"),
        ("* * */status", system, "Tidewaiter"),
        (
            "update cerebral.containership.io autoscalinggroups",
            system,
            "Tidewaiter",
        ),
        (
            "create rbac.authorization.k8s.io rolebindings",
            system,
            "roles or bindings",
        ),
        (
            "patch rbac.authorization.k8s.io clusterroles",
            system,
            "roles or bindings",
        ),
        ("create auth.containership.io authorizationroles", system, "Tidewaiter"),
        ("patch containership.io users", system, "Tidewaiter"),
    ] {
        amounts(text, scope, permission);
    }
}

#[test]
fn what_amounts_to_full_control_in_the_whole_cluster_alone() {
    for (text, permission) in [
        ("get * */log", "kubelet"),
        (
            "create certificates.k8s.io certificatesigningrequests/nodeclient",
            "certificate of any node",
        ),
        ("create certificates.k8s.io */nodeclient", "certificate of any node"),
        ("get core nodes/exec", "kubelet"),
        ("create core nodes/run", "kubelet"),
        ("get core nodes/pods", "kubelet"),
        ("get core */log", "kubelet"),
        (
            "create admissionregistration.k8s.io mutatingwebhookconfigurations",
            "webhooks",
        ),
        (
            "delete admissionregistration.k8s.io validatingadmissionpolicybindings",
            "webhooks",
        ),
        ("patch apiregistration.k8s.io apiservices", "APIServices"),
        ("patch apiextensions.k8s.io customresourcedefinitions", "definitions"),
        (
            "update certificates.k8s.io certificatesigningrequests/approval",
            "certificates",
        ),
        ("sign certificates.k8s.io signers", "certificates"),
        ("create core persistentvolumes", "PersistentVolumes"),
    ] {
        amounts(text, Scope::Cluster, permission);
    }
}

#[test]
fn what_is_harmless_is_permitted_in_every_scope() {
    for text in [
        "get,list,watch core pods,pods/log,services,configmaps,nodes,namespaces,serviceaccounts,persistentvolumes",
        "get core nodes/metrics,nodes/stats,nodes/healthz,nodes/configz",
        "get,list,watch apps *",
        "get,list,watch rbac.authorization.k8s.io *",
        "get,list,watch auth.containership.io *",
        "delete core pods",
        "create core pods/eviction,pods/portforward",
        "patch * deployments/scale",
        "* apps,autoscaling */scale",
        "* * */scale",
        "get,list,watch coordination.k8s.io leases",
        "create certificates.k8s.io certificatesigningrequests/selfnodeclient",
        "impersonate authentication.k8s.io users,groups,serviceaccounts",
        "get /flagz,/configz,/statusz,/logsx",
        "* * ingresses,networkpolicies",
        "* networking.k8s.io ingresses",
        "* * namespaces,services,events,persistentvolumeclaims",
        "create certificates.k8s.io certificatesigningrequests",
        "create authentication.k8s.io tokenreviews",
        "impersonate apps deployments",
        "get,list,watch cerebral.containership.io *",
        "get /metrics",
        "get /healthz*,/livez*,/api*,/openapi/*",
    ] {
        assert_eq!(judged(text), None, "{text}");
    }
    // Nobody impersonates by Deployments, which run pods in system namespaces.
    assert_eq!(
        judged("* * deployments"),
        Some((Scope::SystemNamespace, "permits to run pods"))
    );
}

/// Certificates of other signers are not trusted by the API server.
#[test]
fn signers_are_known_by_their_names() {
    let row = |resources: &[&str], names: &[&str]| {
        let rule = json!({"verbs": ["approve", "sign"], "apiGroups": ["certificates.k8s.io"], "resources": resources, "resourceNames": names});
        full_control(&serde_json::from_value(rule).unwrap(), Scope::Cluster).map(|row| row.permission)
    };
    for names in [
        &["example.com/*"][..],
        &["example.com/a", "b.example.com/*"],
        &["kubernetes.io.example.com/*"],
    ] {
        assert_eq!(row(&["signers"], names), None, "{names:?}");
    }
    let all: &[&str] = &[];
    for names in [
        all,
        &["kubernetes.io/*"],
        &["kubernetes.io/kubelet-serving"],
        &["example.com/*", "kubernetes.io/*"],
    ] {
        assert_eq!(
            row(&["signers"], names),
            Some("permits to approve or sign certificates"),
            "{names:?}"
        );
    }
}

#[test]
fn which_namespaces_are_system_namespaces() {
    let system = SystemNamespaces::and(vec!["argocd".to_owned(), "cattle-*".to_owned()]);
    for (namespace, is_system) in [
        ("kube-system", true),
        ("kube-public", true),
        ("kubeflow", false),
        ("containership-core", true),
        ("containership-core-2", false),
        ("tidewaiter-system", true),
        ("argocd", true),
        ("argocd-2", false),
        ("cattle-fleet", true),
        ("default", false),
    ] {
        assert_eq!(system.contains(namespace), is_system, "{namespace}");
    }
    assert_eq!(Scope::of(None, &system), Scope::Cluster);
    assert_eq!(Scope::of(Some("argocd"), &system), Scope::SystemNamespace);
    assert_eq!(
        Scope::of(Some("argocd"), &SystemNamespaces::default()),
        Scope::Namespace
    );
}

fn repository(path: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

/// Every definition of ours, with its status where it has one.
#[test]
fn what_tidewaiter_acts_on_is_in_the_table() {
    let folders = ["deploy/crds", "deploy/crds/coordinator", "deploy/crds/agent"];
    let files = folders
        .into_iter()
        .flat_map(|folder| fs::read_dir(repository(folder)).unwrap());
    let files = files.map(|file| file.unwrap().path());
    let mut seen = 0;
    for path in files.filter(|path| path.extension().is_some_and(|it| it == "yaml")) {
        let text = fs::read_to_string(&path).unwrap();
        let field = |name: &str| {
            text.lines()
                .find_map(|line| line.trim_start().strip_prefix(name))
                .unwrap()
                .trim()
                .to_owned()
        };
        let (group, plural) = (field("group:"), field("plural:"));
        let status = text.contains("subresources:").then(|| format!("{plural}/status"));
        for resource in [plural].into_iter().chain(status) {
            let found = judged(&format!("patch {group} {resource}"));
            assert_eq!(
                found.map(|(scope, _)| scope),
                Some(Scope::SystemNamespace),
                "{resource}"
            );
        }
        seen += 1;
    }
    assert!(seen >= 15);
}

/// The row as in docs/design/rbac.md, before its reason and source.
fn documented(row: &FullControl) -> String {
    let all = |texts: &[&str]| {
        let texts = texts.iter().map(|it| {
            if it.is_empty() {
                "core".to_owned()
            } else {
                format!("`{it}`")
            }
        });
        texts.collect::<Vec<_>>().join(", ")
    };
    let scope = match row.scope {
        Scope::Namespace => "any",
        Scope::SystemNamespace => "system",
        Scope::Cluster => "cluster",
    };
    let verbs = if row.verbs.is_empty() {
        "any".to_owned()
    } else {
        all(row.verbs)
    };
    format!("| {scope} | {} | {} | {verbs} |", all(row.groups), all(row.resources))
}

#[test]
fn the_table_is_in_the_documentation_with_a_source_for_each_row() {
    let text = fs::read_to_string(repository("docs/design/rbac.md")).unwrap();
    let mut missing = Vec::new();
    for row in ROWS {
        let expected = documented(row);
        let line = text.lines().find(|line| line.starts_with(&expected));
        // A reason and a source.
        if line.is_none_or(|line| {
            line[expected.len()..]
                .split('|')
                .filter(|cell| cell.trim().len() > 5)
                .count()
                < 2
        }) {
            missing.push(expected);
        }
    }
    assert!(
        missing.is_empty(),
        "docs/design/rbac.md has no row with a reason and a source for:\n{}",
        missing.join("\n")
    );
    let rows = text.lines().filter(|line| {
        ["| any |", "| system |", "| cluster |"]
            .iter()
            .any(|it| line.starts_with(it))
    });
    assert_eq!(
        rows.count(),
        ROWS.len(),
        "docs/design/rbac.md has rows that the code does not have"
    );
}

#[test]
fn rules_without_resources_or_paths_permit_nothing() {
    for rule in [json!({"verbs": ["*"]}), json!({"verbs": ["*"], "apiGroups": ["*"]})] {
        let rule: PolicyRule = serde_json::from_value::<PolicyRule>(Value::clone(&rule)).unwrap();
        assert_eq!(full_control(&rule, Scope::Cluster), None);
    }
}
