//! The parts of a cluster besides its collections: API keys, tokens for its kube-apiserver, reported status,
//! and the assignments of autoscaling policies.

use std::ops::ControlFlow;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use super::Error;
use super::answers::Items;
use super::call::{Call, Reply, json, object, respond, text};
use super::cloud::Cloud;
use super::digest::uuid;
use super::lists::{all, complete};
use super::refusal::Refusal;
use super::remember::written;
use super::source::{Spot, cluster};
use super::store::{Listed, References, Row, Source, recorded};
use super::ties::MAX_TEAMS;
use super::token::{Claims, TokenUse};
use super::view::shown;
use crate::models::Kind;
use crate::models::values::{ClusterId, TeamId, UserId};
use crate::models::{NodeStatusReport, Unknown, UpgradeProgress, parse};

/// A short-lived token that identifies the user and the user's teams to one cluster's kube-apiserver. The
/// kube-apiserver is not notified of a revocation: a removed user gets no further token, and this one expires soon.
pub(super) async fn token(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let user = call.user()?;
    cluster(&mut &cloud.store, &spot).await?;
    let teams = cloud.store.using(Kind::Team, Kind::User, &user.to_string()).await?;
    let teams: Vec<_> = teams
        .iter()
        .filter(|team| team.organization_id == spot.organization)
        .collect();
    if i64::try_from(teams.len()).is_ok_and(|teams| teams > MAX_TEAMS) {
        let message = format!(
            "you are in {} teams, and a token can name {MAX_TEAMS}: ask an admin to remove you from some of them",
            teams.len()
        );
        return Err(Refusal::conflict(message).into());
    }
    let token_use = TokenUse::Kubernetes {
        user: UserId(user),
        cluster: ClusterId(uuid(&spot.cluster)),
        teams: teams.iter().map(|team| TeamId(uuid(&team.id))).collect(),
    };
    let claims = Claims::new(token_use, cloud.clock.now(), cloud.parts.lives.kubernetes);
    let token = cloud.sign(&claims)?;
    let body = json!({ "token": token, "expires_at": claims.expires_at.to_string() });
    Ok(Reply::ok(&body).into_response())
}

/// Stores the status that a cluster, or an admin on its behalf, reports.
pub(super) async fn set_status(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let kind = call.kind()?;
    let status = said_status(kind, &call.body)?;
    let spot = Spot::of(call)?;
    let state = cloud.clone();
    written(cloud, call, async move |transaction| {
        spot.check(transaction, kind, true).await?;
        let row = transaction.get(kind, &spot.id).await?;
        let own = |row: &Row| match kind {
            Kind::Cluster => row.organization_id == spot.organization,
            _ => row.cluster_id == spot.cluster,
        };
        let row = row.filter(own).ok_or_else(Refusal::not_found)?;
        let row = transaction.set_status(&row, status).await?;
        Ok(Reply::ok(&shown(&state, &row, false)?))
    })
    .await
}

fn said_status(kind: Kind, body: &[u8]) -> Result<Value, Error> {
    if kind == Kind::Upgrade {
        let mut body = object(body)?;
        let status = body
            .remove("status")
            .ok_or_else(|| Refusal::field("status", "is missing"))?;
        super::call::refuse_others(&body)?;
        let below = |mut error: crate::models::InvalidField| {
            error.field = if error.field.is_empty() {
                "status".to_owned()
            } else {
                format!("status.{}", error.field)
            };
            error
        };
        let said: UpgradeProgress = parse(text(&status).as_bytes(), Unknown::Refuse).map_err(below)?;
        return serde_json::to_value(&said).map_err(Error::internal);
    }
    let said: NodeStatusReport = parse(body, Unknown::Refuse)?;
    serde_json::to_value(&said.status).map_err(Error::internal)
}

/// The record of deletions: a list that lacks an object is right only if the record names the object. So it also names
/// what exists and has left the lists of the cluster.
pub(super) async fn deletions(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    cluster(&mut &cloud.store, &spot).await?;
    let mut items = Items::begin(cloud, call).await?;
    for deletion in cloud.store.deletions(&spot.organization, &spot.cluster).await? {
        items.push(&deletion)?;
    }
    let changed = cloud.store.each_changed_access(&spot.organization, |row| {
        if !is_listed(&row, &spot.cluster)
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
        Kind::Membership => !super::members::is_read_only(row),
        Kind::Role => super::roles::has_rule_for_clusters(row),
        _ => row.text("cluster_id").is_none_or(|of| of == cluster),
    }
}

/// A node of any pool.
pub(super) async fn node_row(cloud: &Cloud, spot: &Spot) -> Result<Row, Error> {
    let mut source = &cloud.store;
    cluster(&mut source, spot).await?;
    let row = source.get(Kind::Node, &spot.id).await?;
    let row = row.filter(|row| row.cluster_id == spot.cluster);
    Ok(row.ok_or_else(Refusal::not_found)?)
}

pub(super) async fn node(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let row = node_row(cloud, &Spot::of(call)?).await?;
    Ok(respond(call, &shown(cloud, &row, false)?))
}

/// Nothing is provisioned here.
pub(super) async fn templates(_: &Cloud, _: &Call) -> Result<Response, Error> {
    Ok(json(StatusCode::OK, Bytes::from_static(b"[]")))
}

fn assignment_id(spot: &Spot) -> String {
    format!("{}.{}", spot.pool, spot.id)
}

pub(super) async fn list_assigned(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let mut source = &cloud.store;
    spot.check(&mut source, Kind::PolicyAssignment, false).await?;
    all(cloud, call, Listed::AssignedTo(&spot.pool), |policy| {
        shown(cloud, policy, false)
    })
    .await
}

pub(super) async fn assign(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let owner = call.owner();
    written(cloud, call, async move |transaction| {
        spot.check(transaction, Kind::PolicyAssignment, true).await?;
        let policy = transaction.get(Kind::AutoscalingPolicy, &spot.id).await?;
        policy
            .filter(|policy| policy.parent_id == spot.cluster)
            .ok_or_else(Refusal::not_found)?;
        if transaction
            .get(Kind::PolicyAssignment, &assignment_id(&spot))
            .await?
            .is_some()
        {
            return Ok(Reply::nothing());
        }
        let row = Row {
            organization_id: spot.organization.clone(),
            cluster_id: spot.cluster.clone(),
            parent_id: spot.pool.clone(),
            owner_id: owner,
            spec: json!({ "policy_id": spot.id }).as_object().cloned().unwrap_or_default(),
            ..Row::new(Kind::PolicyAssignment, assignment_id(&spot))
        };
        let ties = References::to(Kind::AutoscalingPolicy, &spot.id);
        transaction.insert(row, &ties).await?;
        Ok(Reply::nothing())
    })
    .await
}

pub(super) async fn unassign(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    written(cloud, call, async move |transaction| {
        spot.check(transaction, Kind::PolicyAssignment, true).await?;
        let row = transaction
            .existing(Kind::PolicyAssignment, &assignment_id(&spot))
            .await?;
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}
