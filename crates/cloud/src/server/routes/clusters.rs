//! The parts of a cluster besides its collections: API keys, tokens for its kube-apiserver, reported status, its report
//! on itself, and the assignments of autoscaling policies.

use std::ops::ControlFlow;

use bytes::Bytes;
use jiff::Timestamp;

use super::lists::{all, complete};
use super::prelude::*;
use crate::models::values::{ClusterId, EndTime, TeamId, UserId};
use crate::models::{ClusterReport, MAX_TEAMS, NodeStatusReport, Unknown, UpgradeProgress, parse};
use crate::server::access::resource_path::cluster;
use crate::server::access::users::{end_in_team, end_of, is_read_only};
use crate::server::http::response::json;
use crate::server::http::response_budget::Items;
use crate::server::keys::token::{Claims, TokenUse};
use crate::server::store::{membership_id, recorded};

/// A short-lived token that identifies the user and the user's teams to one cluster's kube-apiserver. The
/// kube-apiserver is not notified of a revocation: a removed user gets no further token, and this one expires soon.
pub(super) async fn token(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    let user = call.user()?;
    cluster(&mut &app.store, &resource).await?;
    let (id, now) = (user.to_string(), app.clock.now());
    let mut teams = app.store.using(Kind::Team, Kind::User, &id).await?;
    teams.retain(|team| {
        let has_ended = end_in_team(team, &id).is_some_and(|end| end.has_passed(now));
        team.organization_id == resource.organization && !has_ended
    });
    if i64::try_from(teams.len()).is_ok_and(|teams| teams > MAX_TEAMS) {
        let message = format!(
            "you are in {} teams, and a token can name {MAX_TEAMS}: ask an admin to remove you from some of them",
            teams.len()
        );
        return Err(Refusal::conflict(message).into());
    }
    let token_use = TokenUse::Kubernetes {
        user: UserId(user),
        cluster: ClusterId(uuid(&resource.cluster)),
        teams: teams.iter().map(|team| TeamId(uuid(&team.id))).collect(),
    };
    let mut claims = Claims::new(token_use, now, app.parts.lives.kubernetes);
    // The kube-apiserver refuses it from the first end on, also while the cloud is away: of the user's access, of the
    // membership in the organization, or of one in a team that it names.
    let row = app.store.get(Kind::User, &id).await?;
    let membership = membership_id(&resource.organization, &id);
    let membership = app.store.get(Kind::Membership, &membership).await?;
    let of_rows = [
        end_of(&row.ok_or_else(Refusal::unauthenticated)?),
        end_of(&membership.ok_or_else(Refusal::not_found)?),
    ];
    let ends = teams.iter().map(|team| end_in_team(team, &id)).chain(of_rows);
    let ends = ends.flatten().map(EndTime::get);
    claims.expires_at = ends.fold(claims.expires_at, Timestamp::min);
    let token = app.sign(&claims)?;
    let body = json!({ "token": token, "expires_at": claims.expires_at.to_string() });
    Ok(Reply::ok(&body).into_response())
}

/// Stores the status that a cluster, or an admin on its behalf, reports.
pub(super) async fn set_status(app: &AppState, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    let status = parse_status(kind, &call.body)?;
    let resource = ResourcePath::of(call)?;
    let state = app.clone();
    write(app, call, async move |transaction| {
        resource.check_parents(transaction, kind, true).await?;
        let row = transaction.get(kind, &resource.id).await?;
        let own = |row: &Row| match kind {
            Kind::Cluster => row.organization_id == resource.organization,
            _ => row.cluster_id == resource.cluster,
        };
        let row = row.filter(own).ok_or_else(Refusal::not_found)?;
        let row = transaction.set_status(&row, status).await?;
        Ok(Reply::ok(&shown(&state, &row, false)?))
    })
    .await
}

fn parse_status(kind: Kind, body: &[u8]) -> Result<Value, Error> {
    if kind == Kind::Upgrade {
        let mut body = object(body)?;
        let status = body
            .remove("status")
            .ok_or_else(|| Refusal::field("status", "is missing"))?;
        crate::server::http::call::refuse_others(&body)?;
        let below = |mut error: crate::models::InvalidField| {
            error.field = if error.field.is_empty() {
                "status".to_owned()
            } else {
                format!("status.{}", error.field)
            };
            error
        };
        let report: UpgradeProgress = parse(text(&status).as_bytes(), Unknown::Refuse).map_err(below)?;
        return serde_json::to_value(&report).map_err(Error::internal);
    }
    let report: NodeStatusReport = parse(body, Unknown::Refuse)?;
    serde_json::to_value(&report.status).map_err(Error::internal)
}

/// Stores the report of a cluster on itself. Fields of a newer coordinator are ignored.
pub(super) async fn set_report(app: &AppState, call: &Call) -> Result<Response, Error> {
    let report: ClusterReport = parse(&call.body, Unknown::Ignore)?;
    let report = serde_json::to_value(&report).map_err(Error::internal)?;
    let resource = ResourcePath::of(call)?;
    write(app, call, async move |transaction| {
        resource.check_parents(transaction, Kind::ClusterReport, true).await?;
        let row = cluster(transaction, &resource).await?;
        let row = transaction.set_report(&row, report).await?;
        Ok(Reply::ok(&reported(&row)))
    })
    .await
}

pub(super) async fn report(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    let mut source = &app.store;
    cluster(&mut source, &resource).await?;
    let row = source.existing(Kind::ClusterReport, &resource.cluster).await?;
    Ok(respond(call, &reported(&row)))
}

/// The reports of all clusters of an organization. The diffs of plugins, which are long, are left out.
pub(super) async fn reports(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    all(app, call, Listed::ReportsOf(&resource.organization), |row| {
        let mut shown = reported(row);
        let plugins = shown.get_mut("plugins").and_then(Value::as_array_mut);
        for plugin in plugins.into_iter().flatten() {
            if let Some(waiting) = plugin.get_mut("waiting").and_then(Value::as_object_mut) {
                waiting.insert("diff".to_owned(), json!([]));
            }
        }
        Ok(shown)
    })
    .await
}

/// The report in a row, with the id of its cluster and its time.
pub(crate) fn reported(row: &Row) -> Map<String, Value> {
    let report = row.status.as_ref().and_then(Value::as_object);
    let mut shown = report.cloned().unwrap_or_default();
    shown.insert("cluster_id".to_owned(), Value::from(&*row.cluster_id));
    shown.insert("reported_at".to_owned(), Value::from(&*row.updated_at));
    shown
}

/// The record of deletions: a list that lacks an object is right only if the record names the object. So it also names
/// what exists and has left the lists of the cluster.
pub(super) async fn deletions(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    cluster(&mut &app.store, &resource).await?;
    let mut items = Items::begin(&app.budget, call).await?;
    for deletion in app.store.deletions(&resource.organization, &resource.cluster).await? {
        items.push(&deletion)?;
    }
    let changed = app.store.each_changed_access(&resource.organization, |row| {
        if !is_listed(&row, &resource.cluster)
            && let Some(left) = recorded(row.kind, &row.id, &row.updated_at)
        {
            items.push(&left)?;
        }
        Ok(ControlFlow::Continue(()))
    });
    changed.await?;
    complete(call, items)
}

/// Returns true if a list of the cluster has the member, role or binding.
fn is_listed(row: &Row, cluster: &str) -> bool {
    match row.kind {
        Kind::Membership => !is_read_only(row),
        Kind::Role => super::roles::has_rule_for_clusters(row),
        _ => row.text("cluster_id").is_none_or(|of| of == cluster),
    }
}

/// A node of any pool.
pub(super) async fn node_row(app: &AppState, resource: &ResourcePath) -> Result<Row, Error> {
    let mut source = &app.store;
    cluster(&mut source, resource).await?;
    let row = source.get(Kind::Node, &resource.id).await?;
    let row = row.filter(|row| row.cluster_id == resource.cluster);
    Ok(row.ok_or_else(Refusal::not_found)?)
}

pub(super) async fn node(app: &AppState, call: &Call) -> Result<Response, Error> {
    let row = node_row(app, &ResourcePath::of(call)?).await?;
    Ok(respond(call, &shown(app, &row, false)?))
}

/// Nothing is provisioned here.
pub(super) async fn templates(_: &AppState, _: &Call) -> Result<Response, Error> {
    Ok(json(StatusCode::OK, Bytes::from_static(b"[]")))
}

fn assignment_id(resource: &ResourcePath) -> String {
    format!("{}.{}", resource.pool, resource.id)
}

pub(super) async fn list_assigned(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    let mut source = &app.store;
    resource
        .check_parents(&mut source, Kind::PolicyAssignment, false)
        .await?;
    all(app, call, Listed::AssignedTo(&resource.pool), |policy| {
        shown(app, policy, false)
    })
    .await
}

pub(super) async fn assign(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    let owner = call.owner();
    write(app, call, async move |transaction| {
        resource
            .check_parents(transaction, Kind::PolicyAssignment, true)
            .await?;
        let policy = transaction.get(Kind::AutoscalingPolicy, &resource.id).await?;
        policy
            .filter(|policy| policy.parent_id == resource.cluster)
            .ok_or_else(Refusal::not_found)?;
        if transaction
            .get(Kind::PolicyAssignment, &assignment_id(&resource))
            .await?
            .is_some()
        {
            return Ok(Reply::nothing());
        }
        let row = Row {
            organization_id: resource.organization.clone(),
            cluster_id: resource.cluster.clone(),
            parent_id: resource.pool.clone(),
            owner_id: owner,
            spec: Map::from_iter([("policy_id".to_owned(), resource.id.clone().into())]),
            ..Row::new(Kind::PolicyAssignment, assignment_id(&resource))
        };
        let references = References::to(Kind::AutoscalingPolicy, &resource.id);
        transaction.insert(row, &references).await?;
        Ok(Reply::nothing())
    })
    .await
}

pub(super) async fn unassign(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    write(app, call, async move |transaction| {
        resource
            .check_parents(transaction, Kind::PolicyAssignment, true)
            .await?;
        let row = transaction
            .existing(Kind::PolicyAssignment, &assignment_id(&resource))
            .await?;
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}
