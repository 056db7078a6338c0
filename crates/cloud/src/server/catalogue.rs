//! The catalogue of plugins: shared by all organizations, and changed only by operators, because its manifests are
//! applied in every cluster.
//!
//! Types are compared without regard to case, because old clients ask for `cni` where the catalogue has `CNI`. A type
//! keeps the spelling of its first version.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use http::StatusCode;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::Error;
use super::answers::{Held, holding};
use super::call::{Call, Condition, Reply, respond_with, text};
use super::cloud::{Answer, Cloud, Kept};
use super::endpoints::MAX_SPEC;
use super::lists::cached;
use super::refusal::Refusal;
use super::remember::written;
use super::store::{Listed, References, Row, Scope, Source, StoreError, Transaction};
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

/// The versions of each implementation of each type, as JSON.
type Types = BTreeMap<String, BTreeMap<String, Vec<Box<RawValue>>>>;

/// All versions of an implementation.
#[derive(Serialize)]
struct Definition<'a> {
    implementation: &'a str,
    r#type: &'a str,
    versions: &'a [Box<RawValue>],
}

pub(super) async fn get(cloud: &Cloud, call: &Call, part: Part) -> Result<Response, Error> {
    cached(cloud, call, &call.path, Kept::Everything, || async {
        let as_of = cloud.store.feed().latest();
        let mut held = cloud.hold_first(call).await?;
        let found = if let Part::Version = part {
            let mut source = &cloud.store;
            let ids = source.ids_of(Kind::PluginVersion).await?;
            let id = version_id(spelling(types_of(&ids), call.word("type")), call);
            let row = cloud.store.get(Kind::PluginVersion, &id).await?;
            row.map(|row| text(&current(&row)))
        } else {
            narrowed(&read(cloud, &mut held).await?, call, part)
        };
        let body = Bytes::from(found.ok_or_else(Refusal::not_found)?);
        held.resize(body.len())?;
        let scope = Scope {
            kind: Kind::PluginVersion,
            organization: Uuid::nil(),
            cluster: Uuid::nil(),
        };
        Ok((Answer::new(as_of, vec![scope], body, None), held))
    })
    .await
}

/// Reads all versions. They and the response have the same size, for which `held` is enlarged.
async fn read(cloud: &Cloud, held: &mut Held) -> Result<Types, Error> {
    let (mut types, mut size) = (Types::new(), 0);
    let versions = Listed::Children(Kind::PluginVersion, "");
    let each = cloud.store.each(versions, i64::MIN, i64::MAX, |row| {
        let version = to_raw_value(&current(&row)).map_err(Error::internal)?;
        size += version.get().len();
        held.enlarge(2 * size)?;
        let mut words = row.id.splitn(3, '/').map(str::to_owned);
        let (plugin_type, implementation) = (words.next(), words.next());
        let implementations = types.entry(plugin_type.unwrap_or_default()).or_default();
        implementations
            .entry(implementation.unwrap_or_default())
            .or_default()
            .push(version);
        Ok(ControlFlow::Continue(()))
    });
    each.await?;
    Ok(types)
}

fn narrowed<'a>(types: &'a Types, call: &Call, part: Part) -> Option<String> {
    let definitions = |plugin_type: &str| -> Option<Vec<Definition<'a>>> {
        let (plugin_type, found) = types.get_key_value(plugin_type)?;
        let definition = |(implementation, versions): (&'a String, &'a Vec<_>)| Definition {
            implementation,
            r#type: plugin_type,
            versions,
        };
        Some(found.iter().map(definition).collect())
    };
    let plugin_type = spelling(types.keys().map(String::as_str), call.word("type"));
    match part {
        Part::Type => definitions(plugin_type).map(|found| text(&found)),
        Part::Definition => {
            let mut found = definitions(plugin_type)?.into_iter();
            let found = found.find(|found| found.implementation == call.word("implementation"))?;
            Some(text(&found))
        }
        Part::All | Part::Version => {
            let all = types
                .keys()
                .filter_map(|plugin_type| Some((plugin_type, definitions(plugin_type)?)));
            Some(text(&all.collect::<BTreeMap<_, _>>()))
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
    Ok(spelling(types_of(&ids), plugin_type).to_owned())
}

/// The types of the versions with these ids.
fn types_of(ids: &[String]) -> impl Iterator<Item = &str> + Clone {
    ids.iter().filter_map(|id| id.split('/').next())
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
    let mut source = &cloud.store;
    let ids = source.ids_of(Kind::PluginVersion).await?;
    let id = version_id(spelling(types_of(&ids), call.word("type")), call);
    let held = hold_manifests(cloud, call, &[&id]).await?;
    let manifests = source.document(Kind::PluginManifests, &id).await?;
    let response = respond_with(call, manifests.ok_or_else(Refusal::not_found)?);
    Ok(holding(response, held))
}

/// Checks that the version, or its manifests, are those that the operator has seen. Clusters may have applied manifests
/// already, so they are replaced only by an operator who names them.
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

/// The id of the version of a plugin.
pub(super) fn version_of(plugin: &Map<String, Value>) -> String {
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

/// A part of the budget for a response with the manifests of one of the versions, before they are read: they are in
/// memory once as they are stored, and once in the response.
pub(super) async fn hold_manifests(cloud: &Cloud, call: &Call, versions: &[&str]) -> Result<Held, Error> {
    let mut largest = 0;
    for version in versions {
        let size = cloud.store.size(Kind::PluginManifests, version).await?;
        largest = largest.max(size.try_into().unwrap_or(usize::MAX));
    }
    Ok(cloud
        .hold(call, largest.saturating_mul(2).saturating_add(MAX_SPEC))
        .await?)
}

/// A part of the budget for the response to a new plugin, as [`hold_manifests`]; none for other kinds.
pub(super) async fn hold_created(cloud: &Cloud, call: &Call, document: &Document) -> Result<Option<Held>, Error> {
    let version = document.uses.iter().find(|used| used.kind == Kind::PluginVersion);
    match version {
        Some(version) => hold_manifests(cloud, call, &[&version.id]).await.map(Some),
        None => Ok(None),
    }
}

/// A part of the budget for the response to a change of the plugin `id`, of which `body` may name another version; none
/// for other kinds.
pub(super) async fn hold_changed(
    cloud: &Cloud,
    call: &Call,
    id: &str,
    body: &Map<String, Value>,
) -> Result<Option<Held>, Error> {
    if call.kind()? != Kind::Plugin {
        return Ok(None);
    }
    let before = cloud.store.get(Kind::Plugin, id).await?;
    let mut spec = before.map(|row| row.spec).unwrap_or_default();
    let before = version_of(&spec);
    if let Some(version) = body.get("version") {
        spec.insert("version".to_owned(), version.clone());
    }
    hold_manifests(cloud, call, &[&before, &version_of(&spec)])
        .await
        .map(Some)
}

/// Responds with a plugin and its manifests.
pub(super) async fn with_manifests(cloud: &Cloud, call: &Call, plugin: Map<String, Value>) -> Result<Response, Error> {
    let (id, plugin) = (version_of(&plugin), text(&plugin));
    let held = hold_manifests(cloud, call, &[&id]).await?;
    let text = text_with_manifests(&mut &cloud.store, &id, &plugin).await?;
    Ok(holding(respond_with(call, text), held))
}

/// The text of the plugin with the text `plugin` and the version `id`, with its manifests, which are not parsed: they
/// may have megabytes, and each cluster asks for them again and again.
pub(super) async fn text_with_manifests(source: &mut dyn Source, id: &str, plugin: &str) -> Result<String, Error> {
    let manifests = source.document(Kind::PluginManifests, id).await?;
    let damaged = |_| StoreError::Damaged(format!("the document of {} {id}", Kind::PluginManifests.word()));
    let mut fields: BTreeMap<&str, &RawValue> = serde_json::from_str(plugin).map_err(damaged)?;
    if let Some(manifests) = &manifests {
        fields.extend(serde_json::from_str::<BTreeMap<&str, &RawValue>>(manifests).map_err(damaged)?);
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
