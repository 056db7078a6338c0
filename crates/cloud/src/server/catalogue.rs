//! The catalogue of plugins: shared by all organizations, and changed only by operators, because its manifests are
//! applied in every cluster.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Error;
use super::call::{Call, Reply, text};
use super::cloud::{Answer, Cloud};
use super::kind::Kind;
use super::lists::answered;
use super::refusal::Refusal;
use super::source::Source;
use super::store::{Draft, References, Row, Scope, Transaction};
use crate::models::values::{Slug, Version};
use crate::models::{PluginManifests, PluginVersion, Unknown, parse};

/// A part of the catalogue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    All,
    Type,
    Definition,
    Version,
}

pub(super) async fn get(cloud: &Cloud, call: &Call, part: Part) -> Result<Response, Error> {
    if let Some(answer) = cloud.kept(&call.path).await
        && let Some(response) = answered(call, &answer)
    {
        return Ok(response);
    }
    let as_of = cloud.store.feed().latest();
    let rows = cloud.store.children(Kind::PluginVersion, "").await?;
    let found = narrowed(&rows, call, part).ok_or_else(Refusal::not_found)?;
    let scope = Scope {
        kind: Kind::PluginVersion,
        organization: Uuid::nil(),
        cluster: Uuid::nil(),
    };
    let answer = Arc::new(Answer::new(as_of, vec![scope], Bytes::from(text(&found)), None));
    cloud.keep(call.path.clone(), Arc::clone(&answer), false).await;
    answered(call, &answer).ok_or_else(|| Refusal::not_found().into())
}

fn narrowed(rows: &[Row], call: &Call, part: Part) -> Option<Value> {
    let mut types: BTreeMap<&str, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
    for row in rows {
        let mut words = row.id.splitn(3, '/');
        let (plugin_type, implementation) = (words.next()?, words.next()?);
        let versions = types.entry(plugin_type).or_default().entry(implementation).or_default();
        versions.push(Value::Object(row.spec.clone()));
    }
    let definition = |plugin_type: &str, implementation: &str, versions: &Vec<Value>| json!({ "type": plugin_type, "implementation": implementation, "versions": versions });
    let definitions = |plugin_type: &str| -> Option<Vec<Value>> {
        let found = types.get(plugin_type)?.iter();
        Some(
            found
                .map(|(implementation, versions)| definition(plugin_type, implementation, versions))
                .collect(),
        )
    };
    let (plugin_type, implementation) = (call.word("type"), call.word("implementation"));
    match part {
        Part::All => {
            let all = types
                .keys()
                .filter_map(|plugin_type| Some((*plugin_type, definitions(plugin_type)?)));
            Some(json!(all.collect::<BTreeMap<_, _>>()))
        }
        Part::Type => definitions(plugin_type).map(|found| json!(found)),
        Part::Definition => {
            let versions = types.get(plugin_type)?.get(implementation)?;
            Some(definition(plugin_type, implementation, versions))
        }
        Part::Version => {
            let row = rows.iter().find(|row| row.id == version_id(call))?;
            Some(Value::Object(row.spec.clone()))
        }
    }
}

fn version_id(call: &Call) -> String {
    format!(
        "{}/{}/{}",
        call.word("type"),
        call.word("implementation"),
        call.word("version")
    )
}

/// The id in the path, if all its parts are valid.
fn checked_id(call: &Call) -> Result<(String, Version), Refusal> {
    for word in ["type", "implementation"] {
        let parsed: Result<Slug, _> = call.word(word).parse();
        parsed.map_err(|error| Refusal::field(word, error))?;
    }
    let version: Version = call
        .word("version")
        .parse()
        .map_err(|error| Refusal::field("version", error))?;
    Ok((version_id(call), version))
}

pub(super) async fn set_version(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (id, version) = checked_id(call)?;
    let said: PluginVersion = parse(&call.body, Unknown::Refuse)?;
    if said.version != version {
        let reason = format!("is {}, must be {version} as in the path", said.version);
        return Err(Refusal::field("version", reason).into());
    }
    let spec = as_map(&said)?;
    put(cloud, call, Kind::PluginVersion, id, String::new(), spec).await
}

pub(super) async fn set_manifests(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (id, _) = checked_id(call)?;
    let said: PluginManifests = parse(&call.body, Unknown::Refuse)?;
    let spec = as_map(&said)?;
    if cloud.store.get(Kind::PluginVersion, &id).await?.is_none() {
        return Err(Refusal::not_found().into());
    }
    put(cloud, call, Kind::PluginManifests, id.clone(), id, spec).await?;
    Ok(Reply::nothing().into_response())
}

fn as_map(said: &impl serde::Serialize) -> Result<Map<String, Value>, Error> {
    let value = serde_json::to_value(said).map_err(Error::internal)?;
    Ok(value.as_object().cloned().unwrap_or_default())
}

async fn put(
    cloud: &Cloud,
    call: &Call,
    kind: Kind,
    id: String,
    parent: String,
    spec: Map<String, Value>,
) -> Result<Response, Error> {
    let owner = call.owner();
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let row = if let Some(before) = transaction.get(kind, &id).await? {
                transaction
                    .update(&before, spec, String::new(), &References::default())
                    .await?
            } else {
                let draft = Draft {
                    kind,
                    id,
                    organization_id: String::new(),
                    cluster_id: String::new(),
                    parent_id: parent,
                    owner_id: owner,
                    spec,
                    secret: String::new(),
                    ties: References::default(),
                };
                transaction.insert(draft).await?
            };
            Ok(Reply::ok(&row.spec))
        })
    });
    Ok(reply.await?.into_response())
}

pub(super) async fn delete_version(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let id = version_id(call);
    let reply = cloud.store.write(call.by(), move |transaction| {
        Box::pin(async move {
            let row = transaction
                .get(Kind::PluginVersion, &id)
                .await?
                .ok_or_else(Refusal::not_found)?;
            if !transaction.users_of(Kind::PluginVersion, &id).await?.is_empty() {
                // The message must not reveal whose clusters they are.
                let message = "clusters use this version; disable it, or change the clusters first";
                return Err(Refusal::conflict(message).into());
            }
            transaction.remove(&row).await?;
            Ok(Reply::nothing())
        })
    });
    Ok(reply.await?.into_response())
}

fn version_of(plugin: &Map<String, Value>) -> String {
    let word = |field| plugin.get(field).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}/{}", word("type"), word("implementation"), word("version"))
}

/// Adds the manifests of its version to a plugin: the old API returned both under one path. If the catalogue has none
/// they are omitted, because empty manifests would mean that there is nothing to apply.
pub(super) async fn add_manifests(source: &mut Source<'_>, plugin: &mut Map<String, Value>) -> Result<(), Error> {
    if let Some(row) = source.get(Kind::PluginManifests, &version_of(plugin)).await? {
        plugin.extend(row.spec);
    }
    Ok(())
}

/// Checks that a plugin can be upgraded from its version to the one in `after`.
pub(super) async fn check_upgrade(
    transaction: &mut Transaction,
    before: &Row,
    after: &Map<String, Value>,
) -> Result<(), Error> {
    for field in ["type", "implementation"] {
        if before.spec.get(field) != after.get(field) {
            return Err(Refusal::field(field, "cannot be changed; delete the plugin and create another one").into());
        }
    }
    let (from, to) = (before.spec.get("version"), after.get("version"));
    if from == to {
        return Ok(());
    }
    let current = transaction.get(Kind::PluginVersion, &version_of(&before.spec)).await?;
    let upgrades = current.and_then(|row| row.spec.get("compatibility")?.get("upgrades")?.as_array().cloned());
    match upgrades {
        Some(upgrades) if !upgrades.is_empty() && !to.is_some_and(|to| upgrades.contains(to)) => {
            let words: Vec<_> = upgrades.iter().filter_map(Value::as_str).collect();
            let reason = format!(
                "must be a version that the current one can be upgraded to: {}",
                words.join(", ")
            );
            Err(Refusal::field("version", reason).into())
        }
        _ => Ok(()),
    }
}
