//! In which namespaces a plugin may have objects (`pluginNamespaces`). Pure.
//!
//! The limit refuses a whole version before anything of it is written. It says what is applied, not what the applied
//! objects do: a pod in a permitted namespace has the rights of its service account.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use tidewaiter_api::InvalidValue;
use tidewaiter_cloud::models::values::Namespace;

use super::by_plugin::{ByPlugin, Identity};
use super::object::Object;
use super::observed::Observed;
use super::refused::{Refused, refused};
use super::release::Release;
use super::scope::is_namespaced;

/// The namespaces and cluster-wide objects that a plugin may have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct PluginNamespaces {
    /// The namespaces. The plugin may have these Namespaces themselves, too.
    #[serde(deserialize_with = "names")]
    pub namespaces: Vec<String>,
    /// The cluster-scoped kinds, besides Namespaces: `CustomResourceDefinition.apiextensions.k8s.io`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster_scoped: Vec<String>,
}

fn names<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    let names = Vec::<String>::deserialize(value).map_err(|_| D::Error::custom("must be a list of namespaces"))?;
    let invalid = |InvalidValue { shown, rule, .. }| D::Error::custom(format!("{shown} is no namespace: {rule}"));
    for name in &names {
        name.parse::<Namespace>().map_err(invalid)?;
    }
    Ok(names)
}

/// Refuses the release for the first object that the plugin may not have.
pub(super) fn check(
    limits: &ByPlugin<PluginNamespaces>,
    plugin: &Identity,
    release: &Release,
    observed: &Observed,
) -> Result<(), Refused> {
    if limits.is_empty() {
        return Ok(());
    }
    let Some(row) = limits.of(plugin) else {
        let why = "pluginNamespaces has no row for it: add one, or one for *";
        return Err(refused(format!("plugin {plugin}"), why));
    };
    release.all().try_for_each(|object| {
        let why = refusal(row, object, is_namespaced(object, release, observed));
        why.map_or(Ok(()), |why| Err(refused(object.id.to_string(), why)))
    })
}

fn refusal(row: &PluginNamespaces, object: &Object, namespaced: Option<bool>) -> Option<String> {
    let kind = object.id.kind_name();
    let place = namespaced.map_or_else(|| object.id.clone(), |namespaced| object.id.in_scope(namespaced));
    let permits = |namespace: &str| row.namespaces.iter().any(|permitted| permitted == namespace);
    let elsewhere = |namespace: &str| {
        let permitted = row.namespaces.join(", ");
        format!(
            "pluginNamespaces permits the plugin the namespaces {permitted}: move the object there, or add {namespace} to pluginNamespaces"
        )
    };
    match (place.namespace.as_str(), namespaced) {
        // Its kind is not served, and nothing of the release defines it: it cannot be applied.
        ("", None) => None,
        ("", Some(_)) if kind == "Namespace" => {
            let name = object.id.name.as_str();
            (!permits(name)).then(|| elsewhere(name))
        }
        ("", Some(_)) => {
            let permitted = row.cluster_scoped.iter().any(|other| other.eq_ignore_ascii_case(&kind));
            (!permitted).then(|| {
                format!(
                    "pluginNamespaces limits the plugin to namespaces, and the object is in none: leave it out, or add {kind} to clusterScoped"
                )
            })
        }
        (namespace, _) => (!permits(namespace)).then(|| elsewhere(namespace)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::controllers::plugin::sent::Sent;

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
        check(&limits, &plugin, &release, &observed)
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
}
