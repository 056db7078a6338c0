//! The catalogue of plugins: shared by all organizations, and changed only by operators, because its manifests are
//! applied in every cluster.
//!
//! Types are compared without regard to case, because old clients ask for `cni` where the catalogue has `CNI`. A type
//! keeps the spelling of its first version.

use std::collections::BTreeMap;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::StatusCode;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use uuid::Uuid;

use super::Error;
use super::call::{Call, Condition, Reply, respond, text};
use super::cloud::{Answer, Cloud, Kept};
use super::lists::cached;
use super::refusal::Refusal;
use super::remember::written;
use super::store::{References, Row, Scope, Source, StoreError, Transaction};
use crate::models::values::{Slug, Version};
use crate::models::{self, Document, Kind, PluginManifests, PluginSpec, PluginVersion, Unknown, parse};

/// A part of the catalogue.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part {
    All,
    Type,
    Definition,
    Version,
}

pub(super) async fn get(cloud: &Cloud, call: &Call, part: Part) -> Result<Response, Error> {
    cached(cloud, call, &call.path, Kept::Everything, || async {
        let as_of = cloud.store.feed().latest();
        let rows = cloud.store.children(Kind::PluginVersion, "").await?;
        let found = narrowed(&rows, call, part).ok_or_else(Refusal::not_found)?;
        let scope = Scope {
            kind: Kind::PluginVersion,
            organization: Uuid::nil(),
            cluster: Uuid::nil(),
        };
        Ok(Answer::new(as_of, vec![scope], Bytes::from(text(&found)), None))
    })
    .await
}

fn narrowed(rows: &[Row], call: &Call, part: Part) -> Option<Value> {
    let mut types: BTreeMap<&str, BTreeMap<&str, Vec<Value>>> = BTreeMap::new();
    for row in rows {
        let mut words = row.id.splitn(3, '/');
        let (plugin_type, implementation) = (words.next()?, words.next()?);
        let versions = types.entry(plugin_type).or_default().entry(implementation).or_default();
        versions.push(Value::Object(current(row)));
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
    let (asked, implementation) = (call.word("type"), call.word("implementation"));
    let plugin_type = spelling(types.keys().copied(), asked);
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
            let id = version_id(plugin_type, call);
            let row = rows.iter().find(|row| row.id == id)?;
            Some(Value::Object(current(row)))
        }
    }
}

fn current(row: &Row) -> Map<String, Value> {
    models::current::<PluginVersion>(row.spec.clone())
}

fn version_id(plugin_type: &str, call: &Call) -> String {
    format!("{plugin_type}/{}/{}", call.word("implementation"), call.word("version"))
}

/// `plugin_type` as the catalogue spells it, or unchanged if it has no such type.
pub(super) async fn spelled(transaction: &mut Transaction, plugin_type: &str) -> Result<String, Error> {
    let ids = transaction.ids_of(Kind::PluginVersion).await?;
    let types = ids.iter().filter_map(|id| id.split('/').next());
    Ok(spelling(types, plugin_type).to_owned())
}

/// The type among `known` that equals `asked` except for case, preferring one that equals it exactly.
fn spelling<'a>(mut known: impl Iterator<Item = &'a str> + Clone, asked: &'a str) -> &'a str {
    if known.clone().any(|known| known == asked) {
        return asked;
    }
    known.find(|known| known.eq_ignore_ascii_case(asked)).unwrap_or(asked)
}

/// The version in the path, if all its parts are valid.
fn checked_version(call: &Call) -> Result<Version, Refusal> {
    for word in ["type", "implementation"] {
        let parsed: Result<Slug, _> = call.word(word).parse();
        parsed.map_err(|error| Refusal::field(word, error))?;
    }
    call.word("version")
        .parse()
        .map_err(|error| Refusal::field("version", error))
}

pub(super) async fn set_version(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let version = checked_version(call)?;
    let said: PluginVersion = parse(&call.body, Unknown::Refuse)?;
    if said.version != version {
        let reason = format!("is {}, must be {version} as in the path", said.version);
        return Err(Refusal::field("version", reason).into());
    }
    put(cloud, call, Kind::PluginVersion, as_map(&said)?).await
}

pub(super) async fn set_manifests(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    checked_version(call)?;
    let said: PluginManifests = parse(&call.body, Unknown::Refuse)?;
    put(cloud, call, Kind::PluginManifests, as_map(&said)?).await?;
    Ok(Reply::nothing().into_response())
}

/// The manifests of a version, with the ETag that a replacement needs.
pub(super) async fn manifests(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let rows = cloud.store.children(Kind::PluginVersion, "").await?;
    let types = rows.iter().filter_map(|row| row.id.split('/').next());
    let id = version_id(spelling(types, call.word("type")), call);
    let row = cloud.store.get(Kind::PluginManifests, &id).await?;
    Ok(respond(call, &row.ok_or_else(Refusal::not_found)?.spec))
}

/// Whether the version, or its manifests, are what the operator has seen. Clusters may have applied manifests already, so they are replaced only by an
/// operator who names them.
fn check_seen(before: Option<&Row>, spec: &Map<String, Value>, condition: &Condition) -> Result<(), Refusal> {
    let Some(before) = before else {
        return condition.check_absent();
    };
    if before.kind != Kind::PluginManifests {
        return condition.check(text(&current(before)).as_bytes());
    }
    if before.spec == *spec {
        return Ok(());
    }
    if !condition.is_given() {
        let message = "If-Match: is missing, and the manifests of this version are published: publish another version, or get the manifests \
                       and send their ETag in If-Match to replace them in every cluster that uses the version";
        return Err(Refusal::new(StatusCode::PRECONDITION_REQUIRED, message));
    }
    condition.check(text(&before.spec).as_bytes())
}

fn as_map(said: &impl serde::Serialize) -> Result<Map<String, Value>, Error> {
    let value = serde_json::to_value(said).map_err(Error::internal)?;
    Ok(value.as_object().cloned().unwrap_or_default())
}

async fn put(cloud: &Cloud, call: &Call, kind: Kind, spec: Map<String, Value>) -> Result<Response, Error> {
    let (owner, plugin_type) = (call.owner(), call.word("type").to_owned());
    let (rest, condition) = (version_id("", call), call.condition());
    written(cloud, call, async move |transaction| {
        let id = spelled(transaction, &plugin_type).await? + &rest;
        if kind == Kind::PluginManifests {
            transaction.existing(Kind::PluginVersion, &id).await?;
        }
        let before = transaction.get(kind, &id).await?;
        check_seen(before.as_ref(), &spec, &condition)?;
        let parent_id = if kind == Kind::PluginManifests {
            id.clone()
        } else {
            String::new()
        };
        let row = Row {
            parent_id,
            owner_id: owner,
            spec,
            ..Row::new(kind, id)
        };
        let row = transaction.put(before.as_ref(), row, &References::default()).await?;
        Ok(Reply::ok(&row.spec))
    })
    .await
}

pub(super) async fn delete_version(cloud: &Cloud, call: &Call) -> Result<Response, Error> {
    let (plugin_type, rest) = (call.word("type").to_owned(), version_id("", call));
    let condition = call.condition();
    written(cloud, call, async move |transaction| {
        let id = spelled(transaction, &plugin_type).await? + &rest;
        let row = transaction.existing(Kind::PluginVersion, &id).await?;
        condition.check(text(&current(&row)).as_bytes())?;
        if !transaction.users_of(Kind::PluginVersion, &id).await?.is_empty() {
            // The message must not reveal whose clusters they are.
            let message = "clusters use this version; disable it, or change the clusters first";
            return Err(Refusal::conflict(message).into());
        }
        transaction.remove(&row).await?;
        Ok(Reply::nothing())
    })
    .await
}

fn version_of(plugin: &Map<String, Value>) -> String {
    let word = |field| plugin.get(field).and_then(Value::as_str).unwrap_or_default();
    format!("{}/{}/{}", word("type"), word("implementation"), word("version"))
}

/// Adds the manifests of its version to a plugin: the old API returned both under one path. If the catalogue has none
/// they are omitted, because empty manifests would mean that there is nothing to apply.
pub(super) async fn add_manifests(source: &mut dyn Source, plugin: &mut Map<String, Value>) -> Result<(), Error> {
    if let Some(row) = source.get(Kind::PluginManifests, &version_of(plugin)).await? {
        plugin.extend(row.spec);
    }
    Ok(())
}

/// The text of a plugin with its manifests, which are not parsed: they may have megabytes, and each cluster asks for them again and again.
pub(super) async fn text_with_manifests(source: &mut dyn Source, plugin: &Map<String, Value>) -> Result<String, Error> {
    let id = version_of(plugin);
    let Some(manifests) = source.document(Kind::PluginManifests, &id).await? else {
        return Ok(text(plugin));
    };
    let damaged = |_| StoreError::Damaged(format!("the document of {} {id}", Kind::PluginManifests.word()));
    let mut fields: BTreeMap<String, Box<RawValue>> = serde_json::from_str(&manifests).map_err(damaged)?;
    for (field, value) in plugin {
        if !fields.contains_key(field) {
            fields.insert(field.clone(), to_raw_value(value).map_err(damaged)?);
        }
    }
    Ok(text(&fields))
}

/// A plugin's document, with its type as the catalogue spells it.
pub(super) async fn respelled(transaction: &mut Transaction, document: Document) -> Result<Document, Error> {
    let Some(plugin) = document.typed::<PluginSpec>() else {
        return Ok(document);
    };
    let known = spelled(transaction, plugin.plugin_type.as_str()).await?;
    if known == plugin.plugin_type.as_str() {
        return Ok(document);
    }
    let plugin_type = known.parse().map_err(|error| Refusal::field("type", error))?;
    Ok(Document::of(PluginSpec {
        plugin_type,
        ..plugin.clone()
    })?)
}

/// Checks that a plugin can be upgraded from its version to the one in `after`. What is no plugin is not checked.
pub(super) async fn check_upgrade(transaction: &mut Transaction, before: &Row, after: &Document) -> Result<(), Error> {
    let Some(after) = after.typed::<PluginSpec>() else {
        return Ok(());
    };
    let from: PluginSpec = models::stored(&before.spec)?;
    for (field, is_same) in [
        ("type", from.plugin_type == after.plugin_type),
        ("implementation", from.implementation == after.implementation),
    ] {
        if !is_same {
            return Err(Refusal::field(field, "cannot be changed; delete the plugin and create another one").into());
        }
    }
    if from.version == after.version {
        return Ok(());
    }
    let to = Value::from(after.version.to_string());
    let current = transaction.get(Kind::PluginVersion, &version_of(&before.spec)).await?;
    let upgrades = current.and_then(|row| row.spec.get("compatibility")?.get("upgrades")?.as_array().cloned());
    match upgrades {
        Some(upgrades) if !upgrades.is_empty() && !upgrades.contains(&to) => {
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
