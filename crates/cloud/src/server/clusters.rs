//! The parts of a cluster besides its collections: API keys, tokens for its kube-apiserver, reported status, upgrade
//! scripts, the nodes of all its pools, and the assignments of autoscaling policies.

use aws_lc_rs::digest::{SHA256, digest};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use serde_json::{Value, json};

use super::Error;
use super::call::{Call, Reply, object, text, unless_known};
use super::cloud::Cloud;
use super::digest::{etag, hex, uuid};
use super::kind::Kind;
use super::refusal::Refusal;
use super::source::{Source, Spot, cluster};
use super::store::{Draft, References, Row};
use super::ties::MAX_TEAMS;
use super::token::{Claims, TokenUse};
use super::view::shown;
use crate::models::values::{ClusterId, KubernetesVersion, TeamId, UserId};
use crate::models::{NodeStatusReport, Unknown, UpgradeProgress, UpgradeScript, parse};

/// A short-lived token that identifies the user and the user's teams to one cluster's kube-apiserver. The
/// kube-apiserver is not notified of a revocation: a removed user gets no further token, and this one expires soon.
pub(super) async fn token(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let user = call.user()?;
    cluster(&mut Source::Store(&cloud.store), &spot).await?;
    let teams = cloud
        .store
        .using(Kind::Team, Kind::User, &user.hyphenated().to_string())
        .await?;
    let teams: Vec<_> = teams
        .iter()
        .filter(|team| team.organization_id == spot.organization)
        .collect();
    if teams.len() > MAX_TEAMS {
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
    let claims = Claims::new(token_use, cloud.clock.now(), cloud.lives.kubernetes);
    let token = cloud.tokens.load().sign(&claims).map_err(Error::internal)?;
    let body = json!({ "token": token, "expires_at": claims.expires_at.to_string() });
    Ok(Reply::ok(&body).into_response())
}

/// Stores the status that a cluster, or an admin on its behalf, reports.
pub(super) async fn set_status(cloud: &Cloud, call: &Call, kind: Kind) -> Result<Response, Error> {
    let status = said_status(kind, &call.body)?;
    let spot = Spot::of(call)?;
    let state = cloud.clone();
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let mut source = Source::Transaction(transaction);
            spot.check(&mut source, kind, true).await?;
            let row = source.get(kind, &spot.id).await?;
            let own = |row: &Row| match kind {
                Kind::Cluster => row.organization_id == spot.organization,
                _ => row.cluster_id == spot.cluster,
            };
            let row = row.filter(own).ok_or_else(Refusal::not_found)?;
            let row = transaction.set_status(&row, status).await?;
            Ok(Reply::ok(&shown(&state, &row, false)?))
        })
    });
    Ok(reply.await?.into_response())
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

pub(super) async fn nodes(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    cluster(&mut Source::Store(&cloud.store), &spot).await?;
    let (rows, next) = super::lists::part(call, cloud.store.in_cluster(Kind::Node, &spot.cluster).await?)?;
    let items: Vec<_> = rows
        .iter()
        .map(|row| shown(cloud, row, false))
        .collect::<Result<_, _>>()?;
    let body = Bytes::from(text(&items));
    let answer = super::cloud::Answer::new(0, Vec::new(), body, next);
    super::lists::answered(call, &answer).ok_or_else(|| Refusal::not_found().into())
}

/// A node of any pool.
async fn node_row(cloud: &Cloud, spot: &Spot) -> Result<Row, Error> {
    let mut source = Source::Store(&cloud.store);
    cluster(&mut source, spot).await?;
    let row = source.get(Kind::Node, &spot.id).await?;
    let row = row.filter(|row| row.cluster_id == spot.cluster);
    Ok(row.ok_or_else(Refusal::not_found)?)
}

pub(super) async fn node(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let row = node_row(cloud, &Spot::of(call)?).await?;
    let body = Bytes::from(text(&shown(cloud, &row, false)?));
    Ok(unless_known(call, &etag(&body), body))
}

fn script_id(upgrade: &str, node: &str) -> String {
    if node.is_empty() {
        upgrade.to_owned()
    } else {
        format!("{upgrade}/{node}")
    }
}

/// Stores the script of an upgrade, encrypted because it may contain a token for joining. The audit log has its digest.
pub(super) async fn set_script(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let script = str::from_utf8(&call.body).map_err(|_| Refusal::field("script", "must be UTF-8"))?;
    let script: UpgradeScript = script.parse().map_err(|error| Refusal::field("script", error))?;
    let spot = Spot::of(call)?;
    let (upgrade, owner, state) = (call.key("upgrade_id")?, call.owner(), cloud.clone());
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let mut source = Source::Transaction(transaction);
            spot.check(&mut source, Kind::UpgradeScript, true).await?;
            let above = source.get(Kind::Upgrade, &upgrade).await?;
            above
                .filter(|row| row.parent_id == spot.cluster)
                .ok_or_else(Refusal::not_found)?;
            if !spot.id.is_empty() {
                let node = source.get(Kind::Node, &spot.id).await?;
                node.filter(|row| row.cluster_id == spot.cluster)
                    .ok_or_else(Refusal::not_found)?;
            }
            let id = script_id(&upgrade, &spot.id);
            let sha256 = hex(digest(&SHA256, script.as_str().as_bytes()).as_ref());
            let spec = json!({ "sha256": sha256 }).as_object().cloned().unwrap_or_default();
            let secret = state.seal(Kind::UpgradeScript, &id, &spot.organization, script.as_str())?;
            match transaction.get(Kind::UpgradeScript, &id).await? {
                Some(before) if before.spec == spec => {}
                Some(before) => {
                    transaction
                        .update(&before, spec, secret, &References::default())
                        .await?;
                }
                None => {
                    let draft = Draft {
                        kind: Kind::UpgradeScript,
                        id,
                        organization_id: spot.organization.clone(),
                        cluster_id: spot.cluster.clone(),
                        parent_id: upgrade,
                        owner_id: owner,
                        spec,
                        secret,
                        ties: References::default(),
                    };
                    transaction.insert(draft).await?;
                }
            }
            Ok(Reply::nothing())
        })
    });
    Ok(reply.await?.into_response())
}

/// The script that upgrades a node to a version: that of the newest upgrade to it, preferring the node's own script.
pub(super) async fn script(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let asked = call.asked("version").unwrap_or_default();
    let bad = |error: tidewaiter_api::InvalidValue| {
        let mut refusal = Refusal::field("version", error);
        refusal.status = http::StatusCode::BAD_REQUEST;
        refusal
    };
    let version: KubernetesVersion = asked.parse().map_err(bad)?;
    let node = node_row(cloud, &Spot::of(call)?).await?;
    let wanted = format!("v{version}");
    let upgrades = cloud.store.children(Kind::Upgrade, &node.cluster_id).await?;
    let of_version = |row: &&Row| row.spec.get("targetVersion").and_then(Value::as_str) == Some(&wanted);
    for upgrade in upgrades.iter().rev().filter(of_version) {
        for id in [script_id(&upgrade.id, &node.id), upgrade.id.clone()] {
            if let Some(row) = cloud.store.get(Kind::UpgradeScript, &id).await?
                && let Some(script) = cloud.open(&row)?
            {
                let body = Bytes::copy_from_slice(script.as_bytes());
                let mut response = unless_known(call, &etag(&body), body);
                let shell = HeaderValue::from_static("text/x-shellscript; charset=utf-8");
                response.headers_mut().insert(CONTENT_TYPE, shell);
                return Ok(response);
            }
        }
    }
    let message = format!("no upgrade to {wanted} has a script; upload one with PUT …/upgrades/ID/script");
    Err(Refusal::new(http::StatusCode::NOT_FOUND, message).into())
}

fn assignment_id(spot: &Spot) -> String {
    format!("{}.{}", spot.pool, spot.id)
}

pub(super) async fn list_assigned(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let mut source = Source::Store(&cloud.store);
    spot.check(&mut source, Kind::PolicyAssignment, false).await?;
    let assigned = source.children(Kind::PolicyAssignment, &spot.pool).await?;
    let policies = source.children(Kind::AutoscalingPolicy, &spot.cluster).await?;
    let is_assigned = |policy: &&Row| {
        let of = |row: &Row| row.spec.get("policy_id").and_then(Value::as_str) == Some(&policy.id);
        assigned.iter().any(of)
    };
    let items: Vec<_> = policies
        .iter()
        .filter(is_assigned)
        .map(|row| shown(cloud, row, false))
        .collect::<Result<_, _>>()?;
    let body = Bytes::from(text(&items));
    Ok(unless_known(call, &etag(&body), body))
}

pub(super) async fn assign(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let owner = call.owner();
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let mut source = Source::Transaction(transaction);
            spot.check(&mut source, Kind::PolicyAssignment, true).await?;
            let policy = source.get(Kind::AutoscalingPolicy, &spot.id).await?;
            policy
                .filter(|policy| policy.parent_id == spot.cluster)
                .ok_or_else(Refusal::not_found)?;
            if source
                .get(Kind::PolicyAssignment, &assignment_id(&spot))
                .await?
                .is_some()
            {
                return Ok(Reply::nothing());
            }
            let draft = Draft {
                kind: Kind::PolicyAssignment,
                id: assignment_id(&spot),
                organization_id: spot.organization.clone(),
                cluster_id: spot.cluster.clone(),
                parent_id: spot.pool.clone(),
                owner_id: owner,
                spec: json!({ "policy_id": spot.id }).as_object().cloned().unwrap_or_default(),
                secret: String::new(),
                ties: References {
                    name: None,
                    uses: vec![(Kind::AutoscalingPolicy, spot.id.clone())],
                },
            };
            transaction.insert(draft).await?;
            Ok(Reply::nothing())
        })
    });
    Ok(reply.await?.into_response())
}

pub(super) async fn unassign(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let mut source = Source::Transaction(transaction);
            spot.check(&mut source, Kind::PolicyAssignment, true).await?;
            let row = source.get(Kind::PolicyAssignment, &assignment_id(&spot)).await?;
            transaction.remove(&row.ok_or_else(Refusal::not_found)?).await?;
            Ok(Reply::nothing())
        })
    });
    Ok(reply.await?.into_response())
}
