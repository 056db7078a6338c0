//! The answer, from the objects of the cluster. Pure.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use tidewaiter_api::access::{self, Scope, Subject, SystemNamespaces};
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding};
use tidewaiter_api::values::EndTime;
use tidewaiter_coordinator::controllers::{Limits, OURS, Wait, is_ours, lost_rules, plan_rules};

use super::answer::{
    AccessExplained, EventExplained, GrantExplained, RefusedExplained, RoleExplained, WaitingExplained,
};
use super::asked::Asked;
use super::live::{Bound, Details, Live};

const CLUSTER_ROLE: &str = "ClusterRole";

pub(super) fn explain(live: &Live, details: &Details, asked: &Asked) -> AccessExplained {
    let bound = live.bound.iter().filter(|it| !it.is_default);
    let grants = bound.filter_map(|it| Some((it, asked.named_in(&it.subjects)?)));
    let mut grants: Vec<GrantExplained> = grants
        .flat_map(|(bound, to)| granted(live, details, bound, to))
        .collect();
    grants.sort_by(|a, b| (&a.namespace, &a.role.id, &a.binding).cmp(&(&b.namespace, &b.role.id, &b.binding)));
    let concerned: Vec<_> = live.bindings.iter().filter(|it| asked.concerns(it)).collect();
    let ids: BTreeSet<_> = concerned
        .iter()
        .map(|binding| binding.spec.authorization_role_id.as_str())
        .collect();
    let refused: Vec<_> = ids.into_iter().flat_map(|id| refused(live, id)).collect();
    let waiting: Vec<_> = concerned
        .iter()
        .filter_map(|binding| waiting(live, details, binding))
        .collect();
    let is_told = |event: &&EventExplained| {
        refused.iter().any(|it| it.role.id == event.name) || waiting.iter().any(|it| it.binding == event.name)
    };
    AccessExplained {
        user: asked.user.clone(),
        teams: asked.teams.clone(),
        namespace: asked.namespace.clone(),
        grants,
        events: details.events.iter().filter(is_told).cloned().collect(),
        refused,
        waiting,
        notes: notes(live, asked),
    }
}

fn role(live: &Live, kind: &str, id: &str) -> RoleExplained {
    let found = live.role(id).filter(|_| kind == CLUSTER_ROLE);
    RoleExplained {
        kind: kind.to_owned(),
        id: id.to_owned(),
        name: found.map(|role| role.spec.name.clone()).filter(|name| !name.is_empty()),
    }
}

/// The grants of a binding to the subject `to`.
fn granted(live: &Live, details: &Details, bound: &Bound, to: &str) -> Vec<GrantExplained> {
    let name = &bound.role.name;
    let of_role = |namespace: &String| details.rules.get(&(namespace.clone(), name.clone()));
    let rules: &[PolicyRule] = if bound.role.kind == CLUSTER_ROLE {
        live.cluster_role(name).and_then(|role| role.rules.as_deref())
    } else {
        bound.namespace.as_ref().and_then(of_role).map(Vec::as_slice)
    }
    .unwrap_or_default();
    // A path is in no namespace.
    let applies = |rule: &&PolicyRule| bound.namespace.is_none() || rule.non_resource_urls.is_none();
    let granted = rules.iter().filter(applies).map(|rule| GrantExplained {
        what: access::words(rule),
        rule: rule.clone(),
        namespace: bound.namespace.clone(),
        role: role(live, &bound.role.kind, name),
        binding: bound.name.clone(),
        managed: bound.is_managed,
        expires_at: live.end_of_binding(bound),
        to: to.to_owned(),
    });
    granted.collect()
}

/// The rules of the role that its `ClusterRole` does not have, or will not have when it is not held any more.
fn refused(live: &Live, id: &str) -> Vec<RefusedExplained> {
    let made = live.cluster_role(id).filter(|made| OURS.marks(&made.metadata));
    let (Some(cloud), Some(made)) = (live.role(id), made) else {
        return Vec::new();
    };
    let of_role = live.bindings.iter().filter(|it| it.spec.authorization_role_id == id);
    let scopes = of_role.map(|binding| {
        let namespace = Some(&*binding.spec.namespace).filter(|namespace| !namespace.is_empty());
        Scope::of(namespace, &SystemNamespaces::default())
    });
    let limits = Limits {
        allow_privileged: false,
        ceiling: None,
        scope: scopes.max().unwrap_or_default(),
    };
    let (applied, reasons) = plan_rules(&cloud.spec.rules, limits);
    let rules = cloud.spec.rules.iter().filter_map(access::cluster_rule);
    let missing = rules.filter(|rule| !made.rules.iter().flatten().any(|own| own == rule));
    let refused = missing.map(|rule| {
        let what = access::words(&rule);
        let reason = reasons.iter().find(|refused| refused.rule == rule);
        let why = reason.map_or_else(
            || "it is beyond rbacCeiling, or not applied yet: see the Events".to_owned(),
            |refused| refused.why.to_string(),
        );
        RefusedExplained {
            what,
            role: role(live, CLUSTER_ROLE, id),
            why,
        }
    });
    let rules = made.rules.as_deref().unwrap_or_default();
    let lost = if is_ours(&made.metadata) {
        Vec::new()
    } else {
        lost_rules(&reasons, &applied, rules)
    };
    let held = lost.into_iter().map(|lost| RefusedExplained {
        what: access::words(&lost.rule),
        role: role(live, CLUSTER_ROLE, id),
        why: format!(
            "{}; it is still permitted, because the role is held as another coordinator left it, until it is released: tidewaiter release \
             {CLUSTER_ROLE}",
            lost.why
        ),
    });
    refused.chain(held).collect()
}

/// The binding of the cloud, if the cluster does not have it.
fn waiting(live: &Live, details: &Details, binding: &AuthorizationRoleBinding) -> Option<WaitingExplained> {
    let id = &binding.spec.authorization_role_id;
    let namespace = (!binding.spec.namespace.is_empty()).then(|| binding.spec.namespace.clone());
    let subject = Subject::from(&binding.spec).of_rbac();
    let is_bound = live.bound.iter().any(|it| {
        let same_role = it.role.kind == CLUSTER_ROLE && it.role.name == *id;
        it.is_managed && same_role && it.namespace == namespace && it.subjects.contains(&subject)
    });
    (!is_bound).then(|| WaitingExplained {
        binding: binding.spec.id.clone(),
        role: role(live, CLUSTER_ROLE, id),
        why: over(details, binding).unwrap_or_else(|| why(live, details, id, namespace.as_ref())),
        namespace,
    })
}

/// The end of the binding, if it has passed.
fn over(details: &Details, binding: &AuthorizationRoleBinding) -> Option<String> {
    let end = &binding.spec.expires_at;
    EndTime::of_field(end)
        .filter(|end| end.has_passed(details.now))
        .map(|_| format!("it ended at {end}: set a later expires_at in the cloud, or delete it there"))
}

fn why(live: &Live, details: &Details, role: &str, namespace: Option<&String>) -> String {
    let is_gone = |role: &AuthorizationRole| role.metadata.deletion_timestamp.is_some();
    let made = live.cluster_role(role);
    if live.role(role).is_none_or(is_gone) {
        return Wait::Role(role.to_owned()).to_string();
    }
    match (made, namespace) {
        (None, _) => Wait::ClusterRole(role.to_owned()).to_string(),
        (Some(made), _) if !OURS.marks(&made.metadata) => {
            format!("the ClusterRole {role} is not managed by Tidewaiter: delete it, and Tidewaiter creates its own")
        }
        (_, Some(namespace)) if !details.namespaces.contains(namespace) => {
            Wait::Namespace(namespace.clone()).to_string()
        }
        _ => "it is not bound yet: check that the coordinator runs, and see the Events".to_owned(),
    }
}

fn notes(live: &Live, asked: &Asked) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(user) = &asked.user {
        if asked.teams.is_empty() {
            notes.push(
                "the cluster does not know in which teams the user is: add --team ID for each (tidewaiter cloud get teams -o wide)"
                    .to_owned(),
            );
        }
        if user.name.is_none() {
            notes.push("no User has this id: somebody without access to the nodes, or nobody".to_owned());
        }
    }
    let defaults = live.bound.iter().filter(|it| it.is_default);
    let defaults: Vec<&str> = defaults
        .filter(|it| asked.named_in(&it.subjects).is_some())
        .map(|it| it.name.as_str())
        .collect();
    if !defaults.is_empty() {
        notes.push(format!(
            "not shown: what every cluster gives to everybody ({})",
            defaults.join(", ")
        ));
    }
    notes.extend(live.undecodable.iter().cloned());
    notes
}
