//! Features of roles and bindings that other kinds lack: rules on request, the bindings of one cluster, and the limit of
//! programs.

use super::prelude::*;
use crate::models::Document;

/// The type of the rules that clusters apply.
const KUBERNETES: &str = "kubernetes";

/// The part of a role that the query requests, if there is one. Below an organization rules are always
/// included; below a cluster on request, as in the old API.
pub(super) fn narrowed(call: &Call, mut role: Map<String, Value>) -> Option<Map<String, Value>> {
    let rules = role.get_mut("rules").and_then(Value::as_array_mut);
    if let (Some(wanted), Some(rules)) = (call.query_value("rule_type"), rules) {
        rules.retain(|rule| rule.get("type").and_then(Value::as_str) == Some(wanted));
    }
    let rules = role.get("rules").and_then(Value::as_array);
    if call.query_value("remove_empty") == Some("true") && rules.is_none_or(Vec::is_empty) {
        return None;
    }
    let side_loaded = call.word("cluster_id").is_empty() || call.query_value("side_load") == Some("rules");
    if !side_loaded {
        role.remove("rules");
    }
    Some(role)
}

/// Returns true if clusters list the role: they ask for roles with rules of Kubernetes.
pub(super) fn has_rule_for_clusters(role: &Row) -> bool {
    let spec = role.kind.current(role.spec.clone());
    rules(&spec)
        .iter()
        .any(|rule| rule.get("type").and_then(Value::as_str) == Some(KUBERNETES))
}

/// True for a binding of `cluster` or of all clusters; without a cluster, for each binding.
pub(super) fn is_of_cluster(cluster: Option<&str>, binding: &Map<String, Value>) -> bool {
    let of = binding.get("cluster_id").and_then(Value::as_str);
    cluster.is_none() || of.is_none() || of == cluster
}

/// Returns true if the caller needs the binding: a cluster needs its own bindings and those of all clusters.
pub(super) fn concerns(binding: &Map<String, Value>, asker: &Principal) -> bool {
    let of = binding.get("cluster_id").and_then(Value::as_str);
    match (asker, of) {
        (Principal::Cluster { id, .. }, Some(of)) => id.to_string() == of,
        _ => true,
    }
}

/// Checks that no program adds a rule to a role that is bound: programs give nobody permissions in clusters. A changed
/// rule counts as added.
pub(super) async fn refuse_escalation(
    transaction: &mut Transaction,
    asker: &Principal,
    before: &Row,
    document: &Document,
) -> Result<(), Error> {
    if before.kind != Kind::Role || !asker.is_program() {
        return Ok(());
    }
    let had = Kind::Role.current(before.spec.clone());
    if rules(&document.spec).iter().all(|rule| rules(&had).contains(rule)) {
        return Ok(());
    }
    if transaction.users_of(Kind::Role, &before.id).await?.is_empty() {
        return Ok(());
    }
    let message = "the role is bound, and service accounts and tokens with a scope give nobody permissions in clusters: \
                   log in as a user to add or change its rules";
    Err(Refusal::forbidden(message).into())
}

fn rules(role: &Map<String, Value>) -> &[Value] {
    let rules = role.get("rules").and_then(Value::as_array);
    rules.map(Vec::as_slice).unwrap_or_default()
}

/// Removes ids that the server added to rules, so that a response can be sent back.
pub(super) fn forget_ids(body: &mut Map<String, Value>) {
    let rules = body.get_mut("rules").and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten().filter_map(Value::as_object_mut) {
        for field in ["id", "created_at", "updated_at"] {
            rule.remove(field);
        }
    }
}
