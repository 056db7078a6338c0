//! The time in which the cluster followed the cloud: the difference between a record of the cloud's audit log and one
//! of the API server's.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tidewaiter_testkit::{Audit, AuditEntry};

/// The kinds that become one custom resource each: in the cloud's audit log, in documents, in the cluster.
const MIRRORED: [(&str, &str, &str); 4] = [
    ("users", "User", "users"),
    ("roles", "Role", "authorizationroles"),
    ("role-bindings", "RoleBinding", "authorizationrolebindings"),
    ("plugins", "Plugin", "plugins"),
];

/// One row for each kind: from the change in the cloud to the end of its last effect. `audit` are the writes of the
/// coordinator, `registry` is the id of the one registry.
pub fn table(changes: &[Value], audit: &Audit, worker: &str, registry: &str) -> Result<String> {
    let mut rows = vec![format!("{:<24}{:<46}{:>8}", "IN THE CLOUD", "IN THE CLUSTER", "AFTER")];
    let mut row = |what: &str, effect: &str, took: SignedDuration| {
        rows.push(format!("{what:<24}{effect:<46}{:>5} ms", took.as_millis()));
    };
    for (kind, what, resource) in MIRRORED {
        let creations = created(changes, kind).map(|(id, at)| {
            let is_creation = |entry: &AuditEntry| is_of(entry, resource, id) && entry.response_status.code == 201;
            took(audit, at, is_creation)
        });
        let slowest = creations.collect::<Result<Vec<_>>>()?.into_iter().max();
        row(
            what,
            resource,
            slowest.with_context(|| format!("no {what} was created"))?,
        );
    }
    let is_secret = |entry: &AuditEntry| is_of(entry, "secrets", registry);
    let namespaces = names(audit, is_secret, |entry| &entry.object_ref.namespace);
    let effect = format!("pull secrets in {} namespaces", namespaces.len());
    row(
        "Registry",
        &effect,
        took(audit, first(changes, "registries")?, is_secret)?,
    );
    let nodes = names(
        audit,
        |entry| entry.object_ref.resource == "nodes",
        |entry| &entry.object_ref.name,
    );
    let labelled = first(changes, "labels")?;
    let effects = nodes.iter().filter_map(|node| {
        let patched = audit.iter().find(|entry| is_of(entry, "nodes", node))?;
        Some(patched.stage_timestamp.duration_since(labelled))
    });
    let last = effects.max().context("no Node was labelled")?;
    row("ClusterLabel", &format!("labels of {} Nodes", nodes.len()), last);
    let of_pool = took(audit, first(changes, "nodes")?, |entry| is_of(entry, "nodes", worker))?;
    row("Node of a NodePool", "labels of its Node", of_pool);
    Ok(rows.join("\n"))
}

/// The ids of the objects of a kind that were created in the cloud, and when.
fn created<'a>(changes: &'a [Value], kind: &str) -> impl Iterator<Item = (&'a str, Timestamp)> {
    let created = changes
        .iter()
        .filter(move |change| change["kind"] == kind && change["action"] == "create");
    created.filter_map(|change| Some((change["object_id"].as_str()?, change["at"].as_str()?.parse().ok()?)))
}

/// When the only object of a kind was created in the cloud.
fn first(changes: &[Value], kind: &str) -> Result<Timestamp> {
    let created = created(changes, kind).next();
    Ok(created
        .with_context(|| format!("the cloud created none of the {kind}"))?
        .1)
}

fn is_of(entry: &AuditEntry, resource: &str, name: &str) -> bool {
    entry.object_ref.resource == resource && entry.object_ref.name == name
}

/// A name of each of these writes, once.
fn names<'a>(
    audit: &'a Audit,
    is_effect: impl Fn(&AuditEntry) -> bool,
    name: impl Fn(&'a AuditEntry) -> &'a String,
) -> BTreeSet<&'a String> {
    audit.iter().filter(|entry| is_effect(entry)).map(name).collect()
}

/// From then to the end of the last of these writes.
fn took(audit: &Audit, since: Timestamp, is_effect: impl Fn(&AuditEntry) -> bool) -> Result<SignedDuration> {
    let effects = audit
        .iter()
        .filter(|entry| is_effect(entry) && entry.stage_timestamp > since);
    let last = effects.map(|entry| entry.stage_timestamp).max();
    Ok(last.context("the audit log has no such write")?.duration_since(since))
}
