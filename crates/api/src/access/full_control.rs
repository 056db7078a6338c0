//! The rules that amount to full control of the cluster, as one table, and the scope of a binding from which they do.
//! Pure.
//!
//! A rule is judged by what it permits, so `*` and a list of all verbs, or of all resources, are the same. Names do not
//! limit it: a rule about one object names what an attacker creates, or changes. Only those of signers do, which are no
//! objects. [`ROWS`] is repeated with its reasons in docs/design/rbac.md; a test compares the two.

use std::fmt::{self, Display};

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::{ALL, Action, covers_path, has_or_all, list, permits};
use crate::names::CONTAINERSHIP_NAMESPACE;

mod table;

pub use table::ROWS;

/// The scope of a binding. A wider scope is greater.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Ordinary namespaces only, or nowhere.
    #[default]
    Namespace,
    /// A system namespace, whose pods and Secrets have permissions in the whole cluster.
    SystemNamespace,
    /// The whole cluster.
    Cluster,
}

impl Scope {
    /// The scope of a binding in this namespace; None for the whole cluster.
    #[must_use]
    pub fn of(namespace: Option<&str>, system: &SystemNamespaces) -> Self {
        match namespace {
            None => Self::Cluster,
            Some(namespace) if system.contains(namespace) => Self::SystemNamespace,
            Some(_) => Self::Namespace,
        }
    }
}

/// The system namespaces: `kube-*`, `containership-core`, `tidewaiter-*`, and those that the operator adds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemNamespaces(Vec<String>);

impl SystemNamespaces {
    const BUILT_IN: [&str; 3] = ["kube-*", CONTAINERSHIP_NAMESPACE, "tidewaiter-*"];

    /// Also these: names, or beginnings of names that end with `*`.
    #[must_use]
    pub fn and(more: Vec<String>) -> Self {
        Self(more)
    }

    /// Returns true if the namespace is one of them.
    #[must_use]
    pub fn contains(&self, namespace: &str) -> bool {
        let more = self.0.iter().map(String::as_str);
        Self::BUILT_IN
            .into_iter()
            .chain(more)
            .any(|pattern| match pattern.strip_suffix(ALL) {
                Some(stem) => namespace.starts_with(stem),
                None => namespace == pattern,
            })
    }
}

/// A row of the table: permission for any of these verbs on any of these resources, or for any of these paths, amounts
/// to full control.
#[derive(Debug, PartialEq, Eq)]
pub struct FullControl {
    /// The narrowest scope of a binding in which it does.
    pub scope: Scope,
    /// The API groups; `*` is any. Empty for paths.
    pub groups: &'static [&'static str],
    /// The resources, or paths. `*` is only the rule for all resources; a `*` at the end is anything after it.
    pub resources: &'static [&'static str],
    /// The verbs. `*` is only the rule for all verbs; empty for paths, which count with any verb.
    pub verbs: &'static [&'static str],
    /// The permission, in words that follow "the rule".
    pub permission: &'static str,
}

/// Rules for these subresources of every resource are about what has them: nobody is known by an attribute of such a
/// name.
const ORDINARY_SUBRESOURCES: [&str; 3] = ["log", "scale", "status"];

/// The signers that an API server trusts have such names.
const TRUSTED_SIGNERS: &str = "kubernetes.io/";

/// The row by which the rule amounts to full control of the cluster if a role with it is bound in the scope.
#[must_use]
pub fn full_control(rule: &PolicyRule, scope: Scope) -> Option<&'static FullControl> {
    let names = list(rule.resource_names.as_ref());
    let rule = &PolicyRule {
        resource_names: None,
        ..rule.clone()
    };
    ROWS.iter()
        .find(|row| row.scope <= scope && !row.is_limited_by(names) && row.is_permitted_by(rule))
}

/// The widest scope in which a role with these rules can be bound without amounting to full control; None if there is
/// none.
#[must_use]
pub fn safe_scope(rules: &[PolicyRule]) -> Option<Scope> {
    let is_safe = |scope: &Scope| rules.iter().all(|rule| full_control(rule, *scope).is_none());
    let widest = [Scope::Cluster, Scope::SystemNamespace, Scope::Namespace];
    widest.into_iter().find(is_safe)
}

impl FullControl {
    /// True if the names limit the row to signers that no API server trusts.
    fn is_limited_by(&self, names: &[String]) -> bool {
        self.resources == ["signers"]
            && !names.is_empty()
            && !names.iter().any(|name| name.starts_with(TRUSTED_SIGNERS))
    }

    /// Returns true if the rule, which has no names, permits anything of the row.
    fn is_permitted_by(&self, rule: &PolicyRule) -> bool {
        if self.groups.is_empty() {
            let paths = list(rule.non_resource_urls.as_ref()).iter();
            return paths
                .flat_map(|own| self.resources.iter().map(move |path| (own, path)))
                .any(|(own, path)| overlaps(own, path));
        }
        let of_rule = list(rule.api_groups.as_ref()).iter().map(String::as_str);
        let groups: Vec<&str> = if self.groups.contains(&ALL) {
            of_rule.collect()
        } else {
            self.groups.to_vec()
        };
        groups.into_iter().any(|group| {
            let permits = |resource, verb| permits_any(rule, verb, group, resource);
            let mut resources = self.resources.iter();
            resources.any(|resource| self.verbs.iter().any(|verb| permits(*resource, *verb)))
        })
    }
}

/// Returns true if the rule permits the verb on the resource; with `/*` at its end, on any subresource of it.
fn permits_any(rule: &PolicyRule, verb: &str, group: &str, resource: &str) -> bool {
    let Some(parent) = resource.strip_suffix("/*") else {
        let name = "";
        return permits(
            rule,
            Action::Resource {
                verb,
                group,
                resource,
                name,
            },
        );
    };
    // `*/scopes` is about the subresource `scopes` of every resource.
    let is_about = |own: &String| {
        let (of, sub) = own.split_once('/').unwrap_or((own, ""));
        of == parent || of == ALL && !ORDINARY_SUBRESOURCES.contains(&sub)
    };
    has_or_all(&rule.verbs, verb)
        && has_or_all(list(rule.api_groups.as_ref()), group)
        && list(rule.resources.as_ref()).iter().any(is_about)
}

/// Returns true if some path matches both the path of a rule and the row's.
fn overlaps(own: &str, path: &str) -> bool {
    covers_path(own, path) || path.strip_suffix(ALL).is_some_and(|stem| own.starts_with(stem))
}

impl Display for FullControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.permission)
    }
}

#[cfg(test)]
mod tests;
