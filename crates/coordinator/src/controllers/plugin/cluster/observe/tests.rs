use serde_json::{Value, json};

use super::*;
use crate::controllers::plugin::desired::Sent;

fn of(api_version: &str, kind: &str, namespace: &str, name: &str) -> Value {
    let mut object = json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    if !namespace.is_empty() {
        object["metadata"]["namespace"] = json!(namespace);
    }
    object
}

fn definition(scope: &str) -> Value {
    let mut object = of(
        "apiextensions.k8s.io/v1",
        "CustomResourceDefinition",
        "",
        "widgets.example.com",
    );
    object["spec"] = json!({"group": "example.com", "names": {"kind": "Widget"}, "scope": scope});
    object
}

#[expect(clippy::needless_pass_by_value, reason = "each test has its own")]
fn checked(limits: ByPlugin<PluginNamespaces>, objects: &[Value]) -> Result<(), Refused> {
    let plugin = Identity {
        id: "cccccccc-0000-4000-8000-000000000001".to_owned(),
        type_: "metrics".to_owned(),
        implementation: "prometheus".to_owned(),
    };
    let release = Release::read(&plugin.id, "1.0.0", &Sent::from(&json!({"manifests": [objects]})), &[]).unwrap();
    let kind = |group: &str, kind: &str| (group.to_owned(), "v1".to_owned(), kind.to_owned());
    let observed = Observed {
        kinds: [
            (kind("", "ConfigMap"), true),
            (kind("", "Namespace"), false),
            (kind("apiextensions.k8s.io", "CustomResourceDefinition"), false),
            (kind("rbac.authorization.k8s.io", "ClusterRole"), false),
        ]
        .into(),
        ..Observed::default()
    };
    check_namespaces(&limits, &plugin, &release, &observed)
}

#[test]
fn what_a_plugin_may_not_have_is_refused_with_the_object_and_the_remedy() {
    let rows = || {
        ByPlugin::from([(
            "metrics",
            PluginNamespaces {
                namespaces: vec!["monitoring".to_owned()],
                cluster_scoped: vec!["CustomResourceDefinition.apiextensions.k8s.io".to_owned()],
            },
        )])
    };
    let widget = |namespace: &str| of("example.com/v1", "Widget", namespace, "w");
    for (objects, refused) in [
        (vec![of("v1", "ConfigMap", "monitoring", "a")], None),
        (vec![of("v1", "Namespace", "", "monitoring")], None),
        (vec![definition("Namespaced"), widget("monitoring")], None),
        (
            vec![of("v1", "ConfigMap", "kube-system", "a")],
            Some(("ConfigMap kube-system/a", "add kube-system to pluginNamespaces")),
        ),
        (
            vec![of("v1", "ConfigMap", "", "a")],
            Some(("ConfigMap a", "add default to pluginNamespaces")),
        ),
        (
            vec![of("v1", "Namespace", "", "kube-system")],
            Some(("Namespace kube-system", "add kube-system to pluginNamespaces")),
        ),
        (
            vec![of("rbac.authorization.k8s.io/v1", "ClusterRole", "", "all")],
            Some((
                "ClusterRole.rbac.authorization.k8s.io all",
                "add ClusterRole.rbac.authorization.k8s.io to clusterScoped",
            )),
        ),
        // Before the API server serves the kind.
        (
            vec![definition("Cluster"), widget("")],
            Some(("Widget.example.com w", "add Widget.example.com to clusterScoped")),
        ),
        (
            vec![definition("Namespaced"), widget("")],
            Some(("Widget.example.com w", "add default to pluginNamespaces")),
        ),
        (
            vec![widget("kube-system")],
            Some(("Widget.example.com kube-system/w", "add kube-system")),
        ),
        // A permitted namespace does not permit a cluster-scoped object that has it.
        (
            vec![of("rbac.authorization.k8s.io/v1", "ClusterRole", "monitoring", "all")],
            Some((
                "ClusterRole.rbac.authorization.k8s.io monitoring/all",
                "add ClusterRole.rbac.authorization.k8s.io to clusterScoped",
            )),
        ),
        (
            vec![definition("Cluster"), widget("monitoring")],
            Some((
                "Widget.example.com monitoring/w",
                "add Widget.example.com to clusterScoped",
            )),
        ),
        (
            vec![of("v1", "Namespace", "monitoring", "kube-system")],
            Some((
                "Namespace monitoring/kube-system",
                "add kube-system to pluginNamespaces",
            )),
        ),
        (vec![of("v1", "Namespace", "kube-system", "monitoring")], None),
    ] {
        let found = checked(rows(), &objects);
        match refused {
            None => found.unwrap(),
            Some((at, why)) => {
                let found = found.unwrap_err();
                assert_eq!(found.at, at);
                assert!(found.why.contains(why), "{found} does not contain {why}");
            }
        }
    }
}

#[test]
fn a_plugin_without_a_row_may_have_nothing_once_the_setting_is_set() {
    let object = [of("v1", "ConfigMap", "", "a")];
    checked(ByPlugin::default(), &object).unwrap();
    let other = || ByPlugin::from([("logs", PluginNamespaces::default())]);
    let refused = checked(other(), &object).unwrap_err();
    assert!(refused.why.contains("add one, or one for *"), "{refused}");
}
