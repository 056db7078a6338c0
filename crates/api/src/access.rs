//! The actions that the rules of roles permit, their holders by binding, and the gains and losses by a change. Pure.
//!
//! Source: Kubernetes' RBAC authorizer (`RuleAllows`) and its escalation check (`Covers` of `rbac/validation`). So an
//! API server decides the same about the same rules.

use k8s_openapi::api::rbac::v1::PolicyRule;

use crate::containership::{AuthorizationRule, RuleType};

mod full_control;
mod grant;
mod impact;

pub use full_control::{FullControl, ROWS, Scope, SystemNamespaces, full_control, safe_scope};
pub use grant::{Access, Binding, Grant, Subject, common};
pub use impact::{Change, Difference, changes};

const ALL: &str = "*";

/// The group of Kubernetes' roles and bindings.
pub const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Something that a subject could do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action<'a> {
    /// A request about a resource.
    Resource {
        /// For example `get`.
        verb: &'a str,
        /// The API group; empty for the core group.
        group: &'a str,
        /// The resource, with its subresource: `pods/log`.
        resource: &'a str,
        /// The name of the object; empty when the request has none.
        name: &'a str,
    },
    /// A request to a path outside the resources.
    Path {
        /// For example `get`.
        verb: &'a str,
        /// For example `/metrics`.
        path: &'a str,
    },
}

/// Returns true if the rule permits the action.
#[must_use]
pub fn permits(rule: &PolicyRule, action: Action<'_>) -> bool {
    match action {
        Action::Resource {
            verb,
            group,
            resource,
            name,
        } => {
            let names = list(rule.resource_names.as_ref());
            has_or_all(&rule.verbs, verb)
                && has_or_all(list(rule.api_groups.as_ref()), group)
                && has_resource(list(rule.resources.as_ref()), resource)
                && (names.is_empty() || has(names, name))
        }
        Action::Path { verb, path } => {
            let paths = list(rule.non_resource_urls.as_ref());
            has_or_all(&rule.verbs, verb) && paths.iter().any(|own| covers_path(own, path))
        }
    }
}

/// The first part of `rule`, as a rule with one of each, that no rule of `held` includes. None if they include all of
/// it: an API server lets the holder of `held` give `rule` to others.
#[must_use]
pub fn beyond(held: &[PolicyRule], rule: &PolicyRule) -> Option<PolicyRule> {
    parts(rule)
        .into_iter()
        .find(|part| !held.iter().any(|own| includes(own, part)))
}

/// The rule as rules with one verb and one resource or path each, and at most one name.
#[must_use]
pub fn parts(rule: &PolicyRule) -> Vec<PolicyRule> {
    let one = |text: &String| Some(vec![text.clone()]);
    let names: Vec<Option<Vec<String>>> = match list(rule.resource_names.as_ref()) {
        [] => vec![None],
        names => names.iter().map(one).collect(),
    };
    let mut parts = Vec::new();
    for verb in &rule.verbs {
        let verbs = vec![verb.clone()];
        for group in list(rule.api_groups.as_ref()) {
            for resource in list(rule.resources.as_ref()) {
                parts.extend(names.iter().map(|names| PolicyRule {
                    verbs: verbs.clone(),
                    api_groups: one(group),
                    resources: one(resource),
                    resource_names: names.clone(),
                    ..PolicyRule::default()
                }));
            }
        }
        parts.extend(list(rule.non_resource_urls.as_ref()).iter().map(|path| PolicyRule {
            verbs: verbs.clone(),
            non_resource_urls: one(path),
            ..PolicyRule::default()
        }));
    }
    parts
}

/// Returns true if `own` includes `part`, which [`parts`] made.
#[must_use]
pub fn includes(own: &PolicyRule, part: &PolicyRule) -> bool {
    let names = list(own.resource_names.as_ref());
    let of_names = match list(part.resource_names.as_ref()) {
        [] => names.is_empty(),
        wanted => names.is_empty() || wanted.iter().all(|name| has(names, name)),
    };
    let resources = list(own.resources.as_ref());
    let paths = list(own.non_resource_urls.as_ref());
    let all = |wanted: Option<&Vec<String>>, holds: &dyn Fn(&str) -> bool| list(wanted).iter().all(|it| holds(it));
    of_names
        && part.verbs.iter().all(|verb| has_or_all(&own.verbs, verb))
        && all(part.api_groups.as_ref(), &|group| {
            has_or_all(list(own.api_groups.as_ref()), group)
        })
        && all(part.resources.as_ref(), &|resource| has_resource(resources, resource))
        && all(part.non_resource_urls.as_ref(), &|path| {
            paths.iter().any(|own| covers_path(own, path))
        })
}

/// The rule of the cluster for a rule of the cloud; None if it applies only in the cloud.
#[must_use]
pub fn cluster_rule(rule: &AuthorizationRule) -> Option<PolicyRule> {
    let some = |texts: &Vec<String>| (!texts.is_empty()).then(|| texts.clone());
    (rule.type_ == RuleType::Kubernetes).then(|| PolicyRule {
        api_groups: some(&rule.api_groups),
        resources: some(&rule.resources),
        resource_names: some(&rule.resource_names),
        verbs: rule.verbs.clone(),
        non_resource_urls: some(&rule.non_resource_urls),
    })
}

/// The reason why an API server would refuse the rule, and with it the whole role. Source: `ValidatePolicyRule`.
#[must_use]
pub fn invalid(rule: &PolicyRule) -> Option<&'static str> {
    let is_set = |texts: &Option<Vec<String>>| texts.as_ref().is_some_and(|texts| !texts.is_empty());
    let (groups, resources) = (is_set(&rule.api_groups), is_set(&rule.resources));
    if rule.verbs.is_empty() {
        Some("has no verbs")
    } else if is_set(&rule.non_resource_urls) {
        let mixed = groups || resources || is_set(&rule.resource_names);
        mixed.then_some("has non_resource_urls beside api_groups, resources or resource_names")
    } else if !groups {
        Some("has no api_groups; the core group is the empty text")
    } else if !resources {
        Some("has no resources and no non_resource_urls")
    } else {
        None
    }
}

/// The rule in a few words: `get,list pods in apps`.
#[must_use]
pub fn words(rule: &PolicyRule) -> String {
    let verbs = rule.verbs.join(",");
    let paths = list(rule.non_resource_urls.as_ref());
    if !paths.is_empty() {
        return format!("{verbs} {}", paths.join(","));
    }
    let of_group = |group: &String| {
        if group.is_empty() {
            String::new()
        } else {
            format!(".{group}")
        }
    };
    let groups = list(rule.api_groups.as_ref());
    let resources = list(rule.resources.as_ref()).iter();
    let resources: Vec<String> = resources
        .flat_map(|resource| groups.iter().map(move |group| format!("{resource}{}", of_group(group))))
        .collect();
    let names = list(rule.resource_names.as_ref()).join(",");
    let names = if names.is_empty() {
        names
    } else {
        format!(" named {names}")
    };
    format!("{verbs} {}{names}", resources.join(","))
}

fn list(texts: Option<&Vec<String>>) -> &[String] {
    texts.map_or(&[], Vec::as_slice)
}

fn has(texts: &[String], text: &str) -> bool {
    texts.iter().any(|own| own == text)
}

fn has_or_all(texts: &[String], text: &str) -> bool {
    texts.iter().any(|own| own == ALL || own == text)
}

/// `*` is every resource and subresource, `*/scale` that subresource of every resource.
fn has_resource(resources: &[String], resource: &str) -> bool {
    let sub = resource.split_once('/').map(|(_, sub)| sub);
    resources
        .iter()
        .any(|own| own == ALL || own == resource || sub.is_some() && own.strip_prefix("*/") == sub)
}

fn covers_path(own: &str, path: &str) -> bool {
    let stem = own.strip_suffix(ALL).map(|_| own.trim_end_matches(ALL));
    own == path || stem.is_some_and(|stem| path.starts_with(stem))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rule(value: Value) -> PolicyRule {
        serde_json::from_value(value).unwrap()
    }

    fn resource(groups: &[&str], resources: &[&str], verbs: &[&str], names: &[&str]) -> PolicyRule {
        rule(json!({"apiGroups": groups, "resources": resources, "verbs": verbs, "resourceNames": names}))
    }

    #[test]
    fn what_a_rule_permits() {
        for (rule, action, expected) in [
            (
                resource(&[""], &["pods"], &["get"], &[]),
                ("get", "", "pods", "a"),
                true,
            ),
            (
                resource(&[""], &["pods"], &["get"], &[]),
                ("list", "", "pods", ""),
                false,
            ),
            (
                resource(&[""], &["pods"], &["get"], &[]),
                ("get", "apps", "pods", ""),
                false,
            ),
            (
                resource(&[""], &["pods"], &["get"], &[]),
                ("get", "", "pods/log", "a"),
                false,
            ),
            (
                resource(&[""], &["*/log"], &["get"], &[]),
                ("get", "", "pods/log", "a"),
                true,
            ),
            (
                resource(&[""], &["*/log"], &["get"], &[]),
                ("get", "", "pods", "a"),
                false,
            ),
            (resource(&["*"], &["*"], &["*"], &[]), ("delete", "x", "y/z", "a"), true),
            (
                resource(&[""], &["pods"], &["get"], &["a"]),
                ("get", "", "pods", "a"),
                true,
            ),
            (
                resource(&[""], &["pods"], &["get"], &["a"]),
                ("get", "", "pods", ""),
                false,
            ),
        ] {
            let (verb, group, name_of, name) = action;
            let asked = Action::Resource {
                verb,
                group,
                resource: name_of,
                name,
            };
            assert_eq!(permits(&rule, asked), expected, "{rule:?} {action:?}");
        }
        for (url, path, expected) in [
            ("/healthz", "/healthz", true),
            ("/healthz", "/healthz/etcd", false),
            ("/healthz/*", "/healthz/etcd", true),
            ("/healthz/*", "/healthz", false),
            ("*", "/anything", true),
        ] {
            let rule = rule(json!({"nonResourceURLs": [url], "verbs": ["get"]}));
            assert_eq!(
                permits(&rule, Action::Path { verb: "get", path }),
                expected,
                "{url} {path}"
            );
        }
    }

    #[test]
    fn what_a_holder_may_give_to_others() {
        let held = [
            resource(&[""], &["pods", "*/status"], &["get", "list"], &[]),
            resource(&[""], &["configmaps"], &["*"], &["a", "b"]),
            rule(json!({"nonResourceURLs": ["/healthz*"], "verbs": ["get"]})),
        ];
        for (wanted, missing) in [
            (resource(&[""], &["pods"], &["list", "get"], &[]), None),
            (resource(&[""], &["pods"], &["get"], &["a"]), None),
            (resource(&[""], &["nodes/status"], &["get"], &[]), None),
            (resource(&[""], &["configmaps"], &["patch"], &["b"]), None),
            (
                rule(json!({"nonResourceURLs": ["/healthz/etcd"], "verbs": ["get"]})),
                None,
            ),
            (resource(&[""], &["pods"], &["get", "watch"], &[]), Some("watch pods")),
            (resource(&["", "apps"], &["pods"], &["get"], &[]), Some("get pods.apps")),
            (resource(&[""], &["pods/log"], &["get"], &[]), Some("get pods/log")),
            (resource(&[""], &["configmaps"], &["get"], &[]), Some("get configmaps")),
            (
                resource(&[""], &["configmaps"], &["get"], &["a", "c"]),
                Some("get configmaps named c"),
            ),
            (rule(json!({"nonResourceURLs": ["*"], "verbs": ["get"]})), Some("get *")),
        ] {
            let found = beyond(&held, &wanted).map(|part| words(&part));
            assert_eq!(found.as_deref(), missing, "{wanted:?}");
        }
    }

    #[test]
    fn what_an_api_server_would_refuse() {
        assert_eq!(invalid(&resource(&[""], &["pods"], &["get"], &[])), None);
        assert_eq!(
            invalid(&rule(json!({"nonResourceURLs": ["/x"], "verbs": ["get"]}))),
            None
        );
        for bad in [
            json!({"apiGroups": [""], "resources": ["pods"], "verbs": []}),
            json!({"resources": ["pods"], "verbs": ["get"]}),
            json!({"apiGroups": [""], "verbs": ["get"]}),
            json!({"nonResourceURLs": ["/x"], "apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}),
        ] {
            assert!(invalid(&rule(bad.clone())).is_some(), "{bad}");
        }
    }
}
