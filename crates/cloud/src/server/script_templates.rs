//! Script templates: the scripts of upgrades that have none of their own. One is of a cluster, or of all clusters of an
//! organization, and for a version or for any. It is the same for all nodes and upgrades, and learns the version from
//! its environment. It has no signatures: one is for a single upgrade.

use axum::response::Response;
use serde_json::{Map, Value, json};
use tidewaiter_upgrade::signed::is_signed;

use super::Error;
use super::call::{Call, Condition, Reply};
use super::cloud::Cloud;
use super::endpoints::Input;
use super::lists::all;
use super::refusal::Refusal;
use super::remember::written;
use super::scripts::{said, script_response, store};
use super::source::Spot;
use super::store::{Listed, Row, Source, StoreError};
use super::view::unix_millis;
use crate::models::Kind;
use crate::models::values::TargetVersion;

/// The name of the template for all versions.
const ANY: &str = "any";

/// The cluster or the organization in the path.
fn scope(spot: &Spot) -> &str {
    if spot.cluster.is_empty() {
        &spot.organization
    } else {
        &spot.cluster
    }
}

fn template_id(scope: &str, version: &str) -> String {
    format!("{scope}/{version}")
}

/// The version in the path, as it is stored.
fn version(call: &Call) -> Result<String, Refusal> {
    let word = call.word("target");
    if word == ANY {
        return Ok(ANY.to_owned());
    }
    let version: Result<TargetVersion, _> = word.parse();
    version.map(|version| version.to_string()).map_err(|error| {
        if call.endpoint.takes == Input::Nothing {
            return Refusal::not_found();
        }
        Refusal::parameter("target", format!("{error}; or {ANY}"))
    })
}

/// The template for an upgrade of a node to a version: the closest one.
pub(super) async fn template(cloud: &Cloud, node: &Row, version: &str) -> Result<Option<Row>, StoreError> {
    for scope in [&node.cluster_id, &node.organization_id] {
        for version in [version, ANY] {
            let row = cloud
                .store
                .get(Kind::ScriptTemplate, &template_id(scope, version))
                .await?;
            if row.is_some() {
                return Ok(row);
            }
        }
    }
    Ok(None)
}

fn template_shown(row: &Row) -> Value {
    let cluster = Some(&row.cluster_id).filter(|id| !id.is_empty());
    json!({ "id": row.id, "cluster_id": cluster, "version": row.spec.get("version"), "sha256": row.spec.get("sha256"),
        "updated_at": unix_millis(&row.updated_at) })
}

pub(super) async fn list(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let spot = Spot::of(call)?;
    let mut source = &cloud.store;
    spot.check(&mut source, Kind::ScriptTemplate, false).await?;
    let templates = Listed::Children(Kind::ScriptTemplate, scope(&spot));
    all(cloud, call, templates, |row| Ok(template_shown(row))).await
}

pub(super) async fn get(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (spot, version) = (Spot::of(call)?, version(call)?);
    let mut source = &cloud.store;
    spot.check(&mut source, Kind::ScriptTemplate, false).await?;
    let row = source
        .existing(Kind::ScriptTemplate, &template_id(scope(&spot), &version))
        .await?;
    let script = cloud.open(&row)?;
    let script = script.ok_or_else(Refusal::not_found)?;
    Ok(script_response(call, script.as_str().to_owned()))
}

/// Checks that the template is the one that the caller has seen.
fn check_seen(cloud: &Cloud, row: &Row, condition: &Condition) -> Result<(), Error> {
    let script = cloud.open(row)?;
    Ok(condition.check(script.as_ref().map_or("", |script| script.as_str()).as_bytes())?)
}

/// Stores a template.
pub(super) async fn set(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let script = said(&call.body)?;
    if is_signed(script.as_str()) {
        let reason = "has signatures, which are for one upgrade: set it without them, or as the script of that upgrade";
        return Err(Refusal::field("script", reason).into());
    }
    let (spot, version) = (Spot::of(call)?, version(call)?);
    let (owner, condition, state) = (call.owner(), call.condition(), cloud.clone());
    written(cloud, call, async move |transaction| {
        spot.check(transaction, Kind::ScriptTemplate, true).await?;
        let id = template_id(scope(&spot), &version);
        match transaction.get(Kind::ScriptTemplate, &id).await? {
            Some(before) => check_seen(&state, &before, &condition)?,
            None => condition.check_absent()?,
        }
        let row = Row {
            organization_id: spot.organization.clone(),
            cluster_id: spot.cluster.clone(),
            parent_id: scope(&spot).to_owned(),
            owner_id: owner,
            spec: Map::from_iter([("version".to_owned(), version.clone().into())]),
            ..Row::new(Kind::ScriptTemplate, id)
        };
        store(&state, transaction, row, &script).await?;
        Ok(Reply::nothing())
    })
    .await
}

pub(super) async fn delete(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (spot, version) = (Spot::of(call)?, version(call)?);
    let (condition, state) = (call.condition(), cloud.clone());
    written(cloud, call, async move |transaction| {
        spot.check(transaction, Kind::ScriptTemplate, true).await?;
        let id = template_id(scope(&spot), &version);
        let row = transaction.existing(Kind::ScriptTemplate, &id).await?;
        check_seen(&state, &row, &condition)?;
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}
