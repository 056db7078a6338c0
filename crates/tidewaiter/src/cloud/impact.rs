//! The access that is gained and lost in each cluster, by subject, if a plan is carried out. No requests are sent here.
//!
//! It is what the cloud gives: to a coordinator with the default settings, and, marked as such, what only one with
//! `allowPrivileged: true` gives. What `rbacCeiling` refuses, and `systemNamespaces` adds, is known in its cluster
//! only.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;
use tidewaiter_api::access::{
    Access, Binding, Change, Difference, FullControl, Grant, Scope, Subject, SystemNamespaces, changes, full_control,
};
use tidewaiter_api::values::printable;

use super::plan::{green, red};
use super::session::text;

/// The objects that decide who may do what.
#[derive(Default)]
pub(super) struct AccessObjects {
    pub(super) users: Vec<Value>,
    pub(super) teams: Vec<Value>,
    pub(super) roles: Vec<Value>,
    pub(super) bindings: Vec<Value>,
}

/// The changes in each cluster.
#[derive(Default)]
pub(super) struct Impact {
    /// The name of each cluster, and what changes in it.
    clusters: Vec<(String, Vec<Change>)>,
    /// The names of users and teams by their ids.
    names: HashMap<String, String>,
}

impl Impact {
    /// Returns the changes in the clusters from `before` to `after`.
    pub(super) fn new(clusters: &[Value], before: &AccessObjects, after: &AccessObjects) -> Self {
        let changed = clusters.iter().map(|cluster| {
            let id = text(cluster, "id");
            (
                text(cluster, "name").to_owned(),
                both(&before.access(id), &after.access(id)),
            )
        });
        let subjects = [&before.users, &before.teams, &after.users, &after.teams];
        let names = subjects.into_iter().flatten().map(|object| {
            let name = [text(object, "email"), text(object, "name")];
            let name = name.into_iter().find(|name| !name.is_empty());
            (text(object, "id").to_owned(), name.unwrap_or_default().to_owned())
        });
        Self {
            clusters: changed.collect(),
            names: names.collect(),
        }
    }

    /// The changes as lines; clusters with the same changes are shown together.
    pub(super) fn shown(&self) -> String {
        let mut groups: Vec<(Vec<&str>, &[Change])> = Vec::new();
        for (cluster, changes) in self.clusters.iter().filter(|(_, changes)| !changes.is_empty()) {
            match groups.iter_mut().find(|(_, same)| same == changes) {
                Some((clusters, _)) => clusters.push(cluster),
                None => groups.push((vec![cluster], changes)),
            }
        }
        if groups.is_empty() {
            return "Access: nobody gains or loses anything in any cluster\n".to_owned();
        }
        let mut shown = String::new();
        for (clusters, changes) in groups {
            let word = if clusters.len() == 1 { "cluster" } else { "clusters" };
            let _ = writeln!(shown, "Access in {word} {}:", printable(&clusters.join(", ")));
            for change in changes {
                let who = self.called(&change.subject);
                for gain in &change.gains {
                    shown += &(green(&format!("  + {who}: {}", described(gain, "had"))) + "\n");
                }
                for loss in &change.loses {
                    shown += &(red(&format!("  - {who}: {}", described(loss, "keeps"))) + "\n");
                }
            }
        }
        shown
    }

    fn called(&self, subject: &Subject) -> String {
        let (kind, id) = match subject {
            Subject::User(id) => ("user", id),
            Subject::Team(id) => ("team", id),
        };
        printable(&format!("{kind} {}", self.names.get(id).unwrap_or(id)))
    }
}

/// The changes of a coordinator with the default settings, and what only `allowPrivileged` adds to them. A rule that is
/// refused by default must not hide that it permits what another rule is to permit.
fn both(before: &Access, after: &Access) -> Vec<Change> {
    let mut found = changes(&unprivileged(before), &unprivileged(after));
    for Change { subject, gains, loses } in changes(before, after) {
        let privileged = |all: Vec<Difference>| all.into_iter().filter(|it| why_privileged(&it.grant).is_some());
        let (mut gains, mut loses): (Vec<_>, Vec<_>) = (privileged(gains).collect(), privileged(loses).collect());
        let by_default = found.extract_if(.., |change| change.subject == subject);
        for change in by_default {
            gains.extend(change.gains);
            loses.extend(change.loses);
        }
        if !gains.is_empty() || !loses.is_empty() {
            found.push(Change { subject, gains, loses });
        }
    }
    found.sort_by(|one, other| one.subject.cmp(&other.subject));
    found
}

/// Returns the access that a coordinator with the default settings grants.
fn unprivileged(access: &Access) -> Access {
    let mut access = access.clone();
    for (id, rules) in &mut access.roles {
        let of_role = access.bindings.iter().filter(|binding| binding.role == *id);
        let scopes = of_role.map(|binding| scope(binding.namespace.as_deref()));
        let widest = scopes.max().unwrap_or_default();
        rules.retain(|rule| full_control(rule, widest).is_none());
    }
    access
}

/// The scope of a binding. What a coordinator has in `systemNamespaces` besides is known in its cluster only.
fn scope(namespace: Option<&str>) -> Scope {
    Scope::of(namespace, &SystemNamespaces::default())
}

/// Returns the reason why it is given only with `allowPrivileged: true`.
fn why_privileged(grant: &Grant) -> Option<&'static FullControl> {
    full_control(&grant.rule, scope(grant.namespace.as_deref()))
}

/// Describes the difference, including the part that `verb` expresses: the access that the subject had before, or
/// keeps.
fn described(difference: &Difference, verb: &str) -> String {
    let Difference { grant, except } = difference;
    let mut remarks = Vec::new();
    if !except.is_empty() {
        let except: Vec<String> = except.iter().map(Grant::to_string).collect();
        remarks.push(format!("{verb} {}", except.join("; ")));
    }
    if let Some(why) = why_privileged(grant) {
        remarks.push(format!(
            "only where the coordinator has allowPrivileged: true, because it {why}"
        ));
    }
    let remarks = if remarks.is_empty() {
        String::new()
    } else {
        format!(" ({})", remarks.join("; "))
    };
    printable(&format!("{grant}{remarks}"))
}

impl AccessObjects {
    /// Returns the access that is given in the cluster. A user or a team that is not there has nothing.
    fn access(&self, cluster: &str) -> Access {
        let ids = |objects: &[Value]| {
            objects
                .iter()
                .map(|it| text(it, "id").to_owned())
                .collect::<BTreeSet<_>>()
        };
        let (users, teams) = (ids(&self.users), ids(&self.teams));
        let here = |binding: &&Value| ["", cluster].contains(&text(binding, "cluster_id"));
        let bindings = self.bindings.iter().filter(here).map(binding);
        let exists = |binding: &Binding| match &binding.subject {
            Subject::User(user) => users.contains(user),
            Subject::Team(team) => teams.contains(team),
        };
        let members = |team: &Value| {
            let mut members: BTreeSet<String> = texts(team, "user_ids").into_iter().collect();
            members.retain(|user| users.contains(user));
            (text(team, "id").to_owned(), members)
        };
        let role = |role: &Value| {
            let rules = role.get("rules").and_then(Value::as_array);
            (
                text(role, "id").to_owned(),
                rules.into_iter().flatten().filter_map(rule).collect(),
            )
        };
        Access {
            roles: self.roles.iter().map(role).collect(),
            bindings: bindings.filter(exists).collect(),
            teams: self.teams.iter().map(members).collect(),
        }
    }
}

fn binding(binding: &Value) -> Binding {
    let namespace = text(binding, "namespace");
    let subject = match text(binding, "type") {
        "TeamBinding" => Subject::Team(text(binding, "team_id").to_owned()),
        _ => Subject::User(text(binding, "user_id").to_owned()),
    };
    Binding {
        role: text(binding, "authorization_role_id").to_owned(),
        subject,
        namespace: (!namespace.is_empty()).then(|| namespace.to_owned()),
    }
}

/// The rule of a cluster; None if it applies in the cloud only.
fn rule(rule: &Value) -> Option<PolicyRule> {
    let some = |field| Some(texts(rule, field)).filter(|texts| !texts.is_empty());
    (text(rule, "type") == "kubernetes").then(|| PolicyRule {
        verbs: texts(rule, "verbs"),
        api_groups: some("api_groups"),
        resources: some("resources"),
        resource_names: some("resource_names"),
        non_resource_urls: some("non_resource_urls"),
    })
}

/// A field that is a list of texts, or absent, or `null`.
fn texts(object: &Value, field: &str) -> Vec<String> {
    let items = object.get(field).and_then(Value::as_array);
    let texts = items.into_iter().flatten().filter_map(Value::as_str);
    texts.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
