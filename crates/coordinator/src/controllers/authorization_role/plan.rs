//! The rules of a role that become rules of its `ClusterRole`. Pure.

use std::fmt::{self, Display};

use k8s_openapi::api::rbac::v1::PolicyRule;
use tidewaiter_api::access::{self, FullControl, Scope};
use tidewaiter_api::containership::AuthorizationRule;
use tidewaiter_api::values::quoted;

/// The limits of the rules.
#[derive(Clone, Copy, Debug)]
pub struct Limits<'a> {
    /// True if rules that amount to full control are permitted.
    pub allow_privileged: bool,
    /// Beyond which nothing is permitted.
    pub ceiling: Option<Ceiling<'a>>,
    /// The widest scope in which a binding gives the role.
    pub scope: Scope,
}

/// The `ClusterRole` that `rbacCeiling` names.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its rules; None while there is no such role, and then nothing is permitted.
    pub rules: Option<&'a [PolicyRule]>,
}

/// A rule that is not applied.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// The rule.
    pub rule: PolicyRule,
    /// The reason.
    pub why: Why,
}

/// The reason why a rule is not applied.
#[derive(Clone, Debug, PartialEq)]
pub enum Why {
    /// The API server would refuse it, and with it all others.
    Invalid(&'static str),
    /// It amounts to full control where the role is bound.
    FullControl(&'static FullControl),
    /// The first part of it that the ceiling does not include.
    Beyond(String),
    /// There is no role of this name, which `rbacCeiling` names.
    NoCeiling(String),
}

impl Why {
    pub(super) const WORDS: [&'static str; 3] = ["ceiling", "invalid", "privileged"];

    /// The reason in metrics.
    pub(super) fn word(&self) -> &'static str {
        match self {
            Self::Invalid(_) => "invalid",
            Self::FullControl(_) => "privileged",
            Self::Beyond(_) | Self::NoCeiling(_) => "ceiling",
        }
    }
}

impl Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" {}", access::words(&self.rule), self.why)
    }
}

impl Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Invalid(what) => f.write_str(what),
            Self::FullControl(row) => match row.scope {
                Scope::Namespace => write!(
                    f,
                    "{row}, which amounts to full control and needs allowPrivileged: true"
                ),
                Scope::SystemNamespace => write!(
                    f,
                    "{row}, which in the whole cluster or in a system namespace amounts to full control: bind the role in other namespaces \
                     only, or set allowPrivileged: true"
                ),
                Scope::Cluster => write!(
                    f,
                    "{row}, which in the whole cluster amounts to full control and needs allowPrivileged: true"
                ),
            },
            Self::Beyond(part) => write!(f, "is beyond rbacCeiling, which does not permit \"{part}\""),
            Self::NoCeiling(name) => write!(
                f,
                "is not permitted: rbacCeiling is {}, and there is no ClusterRole of that name",
                quoted(name)
            ),
        }
    }
}

/// The rules that apply, in the order of the role, and those that are refused.
#[must_use]
pub fn plan(rules: &[AuthorizationRule], limits: Limits<'_>) -> (Vec<PolicyRule>, Vec<Refused>) {
    let (mut applied, mut refused) = (Vec::new(), Vec::new());
    for rule in rules.iter().filter_map(access::cluster_rule) {
        match refusal(&rule, limits) {
            None => applied.push(rule),
            Some(why) => refused.push(Refused { rule, why }),
        }
    }
    (applied, refused)
}

/// The refused rules of which a `ClusterRole` with the rules `made` permits something that no applied rule permits. An
/// invalid rule is in no `ClusterRole`.
#[must_use]
pub fn lost<'a>(refused: &'a [Refused], applied: &[PolicyRule], made: &[PolicyRule]) -> Vec<&'a Refused> {
    let is_lost = |refused: &&Refused| {
        let common = made.iter().flat_map(|own| access::common(own, &refused.rule));
        let mut lost = common.filter(|part| access::beyond(applied, part).is_some());
        !matches!(refused.why, Why::Invalid(_)) && lost.next().is_some()
    };
    refused.iter().filter(is_lost).collect()
}

/// The rules that a held `ClusterRole` with the rules `made` retains: those that the cloud lists, in the applied rules
/// and in the lost ones.
pub(super) fn kept(made: &[PolicyRule], applied: &[PolicyRule], lost: &[&Refused]) -> Vec<PolicyRule> {
    let lost = lost.iter().map(|refused| refused.rule.clone());
    let listed: Vec<PolicyRule> = applied.iter().cloned().chain(lost).collect();
    let mut kept = Vec::new();
    for own in made {
        if access::beyond(&listed, own).is_none() {
            kept.push(own.clone());
            continue;
        }
        for part in listed.iter().flat_map(|rule| access::common(own, rule)) {
            if access::beyond(&kept, &part).is_some() {
                kept.push(part);
            }
        }
    }
    kept
}

fn refusal(rule: &PolicyRule, limits: Limits<'_>) -> Option<Why> {
    let privileged = || {
        if limits.allow_privileged {
            return None;
        }
        access::full_control(rule, limits.scope).map(Why::FullControl)
    };
    let beyond = || {
        let Ceiling { name, rules } = limits.ceiling?;
        let Some(rules) = rules else {
            return Some(Why::NoCeiling(name.to_owned()));
        };
        let part = access::beyond(rules, rule)?;
        Some(Why::Beyond(access::words(&part)))
    };
    access::invalid(rule)
        .map(Why::Invalid)
        .or_else(privileged)
        .or_else(beyond)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn rule(kind: &str, more: &Value) -> AuthorizationRule {
        let mut rule = json!({"id": "r", "type": kind});
        for (key, value) in more.as_object().unwrap() {
            rule[key] = value.clone();
        }
        serde_json::from_value(rule).unwrap()
    }

    fn on(groups: &[&str], resources: &[&str], verbs: &[&str]) -> AuthorizationRule {
        rule(
            "kubernetes",
            &json!({"api_groups": groups, "resources": resources, "verbs": verbs}),
        )
    }

    const NONE: Limits<'_> = Limits {
        allow_privileged: false,
        ceiling: None,
        scope: Scope::Namespace,
    };

    /// The rules that apply, and why the others do not.
    fn planned(rules: &[AuthorizationRule], limits: Limits<'_>) -> (Vec<String>, Vec<String>) {
        let (applied, refused) = plan(rules, limits);
        let refused = refused
            .iter()
            .map(|it| format!("{}: {}", it.why.word(), access::words(&it.rule)));
        (applied.iter().map(access::words).collect(), refused.collect())
    }

    #[test]
    fn rules_for_the_cluster_apply_to_the_letter() {
        let named = rule(
            "kubernetes",
            &json!({"api_groups": [""], "resources": ["configmaps"], "resource_names": ["a"], "verbs": ["get"]}),
        );
        let path = rule(
            "kubernetes",
            &json!({"non_resource_urls": ["/metrics"], "verbs": ["get"]}),
        );
        let cloud = rule(
            "containership",
            &json!({"resources": ["clusters"], "verbs": ["delete"]}),
        );
        let (applied, refused) = plan(&[named, cloud, path], NONE);
        assert!(refused.is_empty());
        let expected = json!([
            {"apiGroups": [""], "resources": ["configmaps"], "resourceNames": ["a"], "verbs": ["get"]},
            {"nonResourceURLs": ["/metrics"], "verbs": ["get"]},
        ]);
        assert_eq!(serde_json::to_value(applied).unwrap(), expected);
    }

    #[test]
    fn rules_are_refused_one_by_one() {
        let (pods, everything) = (on(&[""], &["pods"], &["get"]), on(&["*"], &["*"], &["*"]));
        let secrets = on(&[""], &["secrets"], &["get"]);
        let invalid = on(&[], &["pods"], &["get"]);
        let rules = [pods, everything, secrets, invalid];
        let ceiling: Vec<PolicyRule> = vec![access::cluster_rule(&on(&[""], &["pods"], &["get", "list"])).unwrap()];
        let (scope, allowed) = (Scope::Cluster, true);
        for (limits, applied, refused) in [
            (
                NONE,
                &["get pods", "get secrets"][..],
                &["privileged: * *.*", "invalid: get "][..],
            ),
            (
                Limits { scope, ..NONE },
                &["get pods"],
                &["privileged: * *.*", "privileged: get secrets", "invalid: get "],
            ),
            (
                Limits {
                    allow_privileged: allowed,
                    scope,
                    ..NONE
                },
                &["get pods", "* *.*", "get secrets"],
                &["invalid: get "],
            ),
            (
                Limits {
                    allow_privileged: allowed,
                    ceiling: Some(Ceiling {
                        name: "c",
                        rules: Some(&ceiling),
                    }),
                    scope,
                },
                &["get pods"],
                &["ceiling: * *.*", "ceiling: get secrets", "invalid: get "],
            ),
            (
                Limits {
                    ceiling: Some(Ceiling { name: "c", rules: None }),
                    ..NONE
                },
                &[],
                &[
                    "ceiling: get pods",
                    "privileged: * *.*",
                    "ceiling: get secrets",
                    "invalid: get ",
                ],
            ),
        ] {
            let found = planned(&rules, limits);
            assert_eq!(
                (&found.0[..], &found.1[..]),
                (&owned(applied)[..], &owned(refused)[..]),
                "{limits:?}"
            );
        }
    }

    #[test]
    fn a_held_role_keeps_what_the_cloud_lists_and_loses_what_no_applied_rule_permits() {
        let made_of = |rules: &[AuthorizationRule]| -> Vec<PolicyRule> {
            rules.iter().filter_map(access::cluster_rule).collect()
        };
        let (pods, secrets) = (
            on(&[""], &["pods"], &["get"]),
            on(&[""], &["secrets"], &["get", "list"]),
        );
        let (everything, services) = (on(&["*"], &["*"], &["*"]), on(&[""], &["services"], &["get"]));
        let all_reads = on(&["*"], &["*"], &["get"]);
        let all_of_secrets = on(&[""], &["secrets"], &["*"]);
        let mixed = rule(
            "kubernetes",
            &json!({"api_groups": [""], "resources": ["pods"], "non_resource_urls": ["/metrics"], "verbs": ["get"]}),
        );
        let scope = Scope::Cluster;
        for (listed, made, lost, kept) in [
            // The refused rule is a part of what exists, the same, wider, or neither.
            (
                &[&secrets][..],
                &[&everything][..],
                &["get,list secrets"][..],
                &["get secrets", "list secrets"][..],
            ),
            (&[&everything], &[&everything], &["* *.*"], &["* *.*"]),
            (
                &[&everything],
                &[&secrets, &pods],
                &["* *.*"],
                &["get,list secrets", "get pods"],
            ),
            (&[&all_of_secrets], &[&all_reads], &["* secrets"], &["get secrets"]),
            // What the cloud does not list any more goes.
            (
                &[&secrets, &pods],
                &[&pods, &secrets, &services],
                &["get,list secrets"],
                &["get pods", "get,list secrets"],
            ),
            // What an applied rule permits is not lost.
            (&[&everything, &pods], &[&pods], &[], &["get pods"]),
            (&[&secrets], &[&pods], &[], &[]),
            // An invalid rule is in no role.
            (&[&mixed], &[&pods], &[], &[]),
        ] {
            let listed: Vec<AuthorizationRule> = listed.iter().map(|&rule| rule.clone()).collect();
            let made: Vec<AuthorizationRule> = made.iter().map(|&rule| rule.clone()).collect();
            let made = made_of(&made);
            let (applied, refused) = plan(&listed, Limits { scope, ..NONE });
            let found = super::lost(&refused, &applied, &made);
            let names: Vec<String> = found.iter().map(|refused| access::words(&refused.rule)).collect();
            assert_eq!(names, lost, "{listed:?}, {made:?}");
            let left = super::kept(&made, &applied, &found);
            assert_eq!(
                left.iter().map(access::words).collect::<Vec<_>>(),
                kept,
                "{listed:?}, {made:?}"
            );
            assert_eq!(
                super::kept(&left, &applied, &found),
                left,
                "the second time changes nothing"
            );
        }
    }

    #[test]
    fn a_refusal_says_what_to_do() {
        let (_, refused) = plan(&[on(&[""], &["nodes/proxy"], &["get"])], NONE);
        assert_eq!(
            refused[0].to_string(),
            "\"get nodes/proxy\" permits nodes/proxy, which amounts to full control and needs allowPrivileged: true"
        );
    }

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_ceiling_that_does_not_exist_is_named() {
        let limits = Limits {
            ceiling: Some(Ceiling {
                name: "viw",
                rules: None,
            }),
            ..NONE
        };
        let (_, refused) = plan(&[on(&[""], &["pods"], &["get"])], limits);
        let expected =
            "\"get pods\" is not permitted: rbacCeiling is \"viw\", and there is no ClusterRole of that name";
        assert_eq!(refused[0].to_string(), expected);
    }
}
