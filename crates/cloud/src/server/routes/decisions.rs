//! Decisions of people about what a cluster holds: releases and approvals. A decision names exactly what the cluster
//! reports, and the cluster takes it once, before it ends. Whether it obeys is a setting of the cluster.

use std::sync::Arc;

use jiff::Timestamp;

use super::lists::complete;
use super::prelude::*;
use crate::models::{ApprovalSpec, DECISION_LIFETIME, ReleaseSpec, Unknown, parse};
use crate::server::access::resource_path::cluster;
use crate::server::http::response_budget::Items;

/// The kinds whose deletions take access away: only an owner releases them.
pub(crate) const ACCESS: [&str; 5] = [
    "User",
    "AuthorizationRole",
    "AuthorizationRoleBinding",
    "ClusterRole",
    "Node",
];

pub(super) async fn release(app: &AppState, call: &Call) -> Result<Response, Error> {
    let release: ReleaseSpec = parse(&call.body, Unknown::Refuse)?;
    let resource = ResourcePath::of(call)?;
    let (owner, caller) = (call.owner(), Arc::clone(call.caller()?));
    write(app, call, async move |transaction| {
        let report = report(transaction, &resource).await?;
        let role = caller.principal.role_in(uuid(&resource.organization));
        if ACCESS.contains(&release.kind.as_str()) && role != Some(OrgRole::Owner) {
            let message = format!("{} is about access: only an owner can release it", release.kind);
            return Err(Refusal::forbidden(message).into());
        }
        let is_held = |kind: &Value| {
            kind["kind"] == release.kind.as_str() && kind["held"]["revision"] == release.revision.as_str()
        };
        if !items(&report, "kinds").any(is_held) {
            let message = format!(
                "the cluster does not report that it holds {} with the revision {}: see what it holds now",
                release.kind, release.revision
            );
            return Err(Refusal::conflict(message).into());
        }
        decide(transaction, &resource, owner, "release", json!(release)).await
    })
    .await
}

pub(super) async fn approve(app: &AppState, call: &Call) -> Result<Response, Error> {
    let approval: ApprovalSpec = parse(&call.body, Unknown::Refuse)?;
    let resource = ResourcePath::of(call)?;
    let owner = call.owner();
    write(app, call, async move |transaction| {
        let report = report(transaction, &resource).await?;
        let waits = |plugin: &Value| {
            plugin["id"] == approval.plugin.to_string() && plugin["waiting"]["digest"] == approval.digest.as_str()
        };
        if !items(&report, "plugins").any(waits) {
            let message = "the cluster does not report that this plugin awaits approval with this digest: see what \
                           awaits approval now";
            return Err(Refusal::conflict(message).into());
        }
        decide(transaction, &resource, owner, "approval", json!(approval)).await
    })
    .await
}

/// The last report of the cluster, if the cluster accepts decisions.
async fn report(transaction: &mut Transaction, resource: &ResourcePath) -> Result<Value, Error> {
    resource.check_parents(transaction, Kind::ClusterDecision, true).await?;
    let row = transaction.get(Kind::ClusterReport, &resource.cluster).await?;
    let report = row.and_then(|row| row.status).unwrap_or_default();
    if report["accepts_releases"] != true {
        let message = "the cluster does not accept this from the cloud: it needs acceptReleasesFromCloud: true in the \
                       settings of its coordinator; or run tidewaiter release or tidewaiter plugin approve in the cluster";
        return Err(Refusal::conflict(message).into());
    }
    Ok(report)
}

fn items<'a>(report: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    report[field].as_array().into_iter().flatten()
}

/// Returns true if the decision was made so long ago that the cluster cannot take it.
fn has_ended(decision: &Row, now: Timestamp) -> bool {
    let made: Option<Timestamp> = decision.created_at.parse().ok();
    made.is_none_or(|made| now.duration_since(made) > DECISION_LIFETIME)
}

/// Stores a decision, unless the cluster has yet to take the same one. Ended ones are deleted.
async fn decide(
    transaction: &mut Transaction,
    resource: &ResourcePath,
    owner: String,
    what: &str,
    decision: Value,
) -> Result<Reply, Error> {
    let spec = Map::from_iter([(what.to_owned(), decision)]);
    let now = transaction.now();
    let stored = transaction.children(Kind::ClusterDecision, &resource.cluster).await?;
    let (ended, pending): (Vec<Row>, Vec<Row>) = stored.into_iter().partition(|row| has_ended(row, now));
    transaction.remove_all(&ended).await?;
    if !pending.iter().any(|row| row.spec == spec) {
        let row = Row {
            organization_id: resource.organization.clone(),
            cluster_id: resource.cluster.clone(),
            parent_id: resource.cluster.clone(),
            owner_id: owner,
            spec,
            ..Row::new(Kind::ClusterDecision, Uuid::new_v4().to_string())
        };
        transaction.insert(row, &References::default()).await?;
    }
    Ok(Reply::nothing())
}

pub(super) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    let mut source = &app.store;
    cluster(&mut source, &resource).await?;
    let mut items = Items::begin(&app.budget, call).await?;
    for row in source.children(Kind::ClusterDecision, &resource.cluster).await? {
        let of = |what: &str| row.spec.get(what).cloned().unwrap_or_default();
        if !has_ended(&row, app.clock.now()) {
            items.push(&json!({ "id": row.id, "release": of("release"), "approval": of("approval") }))?;
        }
    }
    complete(call, items)
}

/// Takes a decision: the cluster does so before it obeys, so that it obeys once. An admin withdraws it so; the audit
/// log names who did.
pub(super) async fn take(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    write(app, call, async move |transaction| {
        resource.check_parents(transaction, Kind::ClusterDecision, true).await?;
        let row = transaction.existing(Kind::ClusterDecision, &resource.id).await?;
        if row.cluster_id != resource.cluster || has_ended(&row, transaction.now()) {
            return Err(Refusal::not_found().into());
        }
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}
