//! Script templates: the scripts of upgrades that have none of their own. One is of a cluster, or of all clusters of an
//! organization, and for a version or for any. It is the same for all nodes and upgrades, and learns the version from
//! its environment. It has no signatures: one is for a single upgrade.

use tidewaiter_upgrade::signed::is_signed;

use super::lists::all;
use super::prelude::*;
use super::stored_scripts::{parse_script, script_response, store};
use crate::models::values::TargetVersion;
use crate::server::http::conditions::Condition;
use crate::server::http::endpoint::Input;
use crate::server::store::StoreError;

/// The name of the template for all versions.
const ANY: &str = "any";

/// The cluster or the organization in the path.
fn scope(resource: &ResourcePath) -> &str {
    if resource.cluster.is_empty() {
        &resource.organization
    } else {
        &resource.cluster
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
pub(super) async fn template(app: &AppState, node: &Row, version: &str) -> Result<Option<Row>, StoreError> {
    for scope in [&node.cluster_id, &node.organization_id] {
        for version in [version, ANY] {
            let id = template_id(scope, version);
            let row = app.store.get(Kind::ScriptTemplate, &id).await?;
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

pub(super) async fn list(app: &AppState, call: &Call) -> Result<Response, Error> {
    let resource = ResourcePath::of(call)?;
    let mut source = &app.store;
    resource.check_parents(&mut source, Kind::ScriptTemplate, false).await?;
    let templates = Listed::Children(Kind::ScriptTemplate, scope(&resource));
    all(app, call, templates, |row| Ok(template_shown(row))).await
}

pub(super) async fn get(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (resource, version) = (ResourcePath::of(call)?, version(call)?);
    let mut source = &app.store;
    resource.check_parents(&mut source, Kind::ScriptTemplate, false).await?;
    let row = source
        .existing(Kind::ScriptTemplate, &template_id(scope(&resource), &version))
        .await?;
    let script = app.open(&row)?;
    let script = script.ok_or_else(Refusal::not_found)?;
    Ok(script_response(call, script.as_str().to_owned()))
}

/// Checks that the template is the one that the caller has seen.
fn check_seen(app: &AppState, row: &Row, condition: &Condition) -> Result<(), Error> {
    let script = app.open(row)?;
    Ok(condition.check(script.as_ref().map_or("", |script| script.as_str()).as_bytes())?)
}

/// Stores a template.
pub(super) async fn set(app: &AppState, call: &Call) -> Result<Response, Error> {
    let script = parse_script(&call.body)?;
    if is_signed(script.as_str()) {
        let reason = "has signatures, which are for one upgrade: set it without them, or as the script of that upgrade";
        return Err(Refusal::field("script", reason).into());
    }
    let (resource, version) = (ResourcePath::of(call)?, version(call)?);
    let (owner, condition, state) = (call.owner(), call.condition(), app.clone());
    write(app, call, async move |transaction| {
        resource.check_parents(transaction, Kind::ScriptTemplate, true).await?;
        let id = template_id(scope(&resource), &version);
        match transaction.get(Kind::ScriptTemplate, &id).await? {
            Some(before) => check_seen(&state, &before, &condition)?,
            None => condition.check_absent()?,
        }
        let row = Row {
            organization_id: resource.organization.clone(),
            cluster_id: resource.cluster.clone(),
            parent_id: scope(&resource).to_owned(),
            owner_id: owner,
            spec: Map::from_iter([("version".to_owned(), version.clone().into())]),
            ..Row::new(Kind::ScriptTemplate, id)
        };
        store(&state, transaction, row, &script).await?;
        Ok(Reply::nothing())
    })
    .await
}

pub(super) async fn delete(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (resource, version) = (ResourcePath::of(call)?, version(call)?);
    let (condition, state) = (call.condition(), app.clone());
    write(app, call, async move |transaction| {
        resource.check_parents(transaction, Kind::ScriptTemplate, true).await?;
        let id = template_id(scope(&resource), &version);
        let row = transaction.existing(Kind::ScriptTemplate, &id).await?;
        check_seen(&state, &row, &condition)?;
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}
