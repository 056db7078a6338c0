//! The catalogue of plugins: shared by all organizations, and changed only by operators, because its manifests are
//! applied in every cluster.
//!
//! Types are compared without regard to case, because old clients ask for `cni` where the catalogue has `CNI`. A type
//! keeps the spelling of its first version.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use bytes::Bytes;
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::lists::cached;
use super::manifests::{hold_manifests, version_of};
use super::prelude::*;
use crate::models;
use crate::models::values::{Slug, Version};
use crate::models::{Document, PluginManifests, PluginSpec, PluginVersion, Unknown, parse};
use crate::server::digest::etag;
use crate::server::http::conditions::Condition;
use crate::server::http::list_cache::{CacheScope, CachedList};
use crate::server::http::response::respond_with;
use crate::server::http::response_budget::{Held, holding};
use crate::server::store::Scope;

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

pub(super) async fn get(app: &AppState, call: &Call, part: Part) -> Result<Response, Error> {
    cached(app, call, &call.path, CacheScope::Everything, || async {
        let as_of = app.store.feed().latest();
        let mut held = app.budget.hold_first(call).await?;
        let found = if let Part::Version = part {
            let mut source = &app.store;
            let ids = source.ids_of(Kind::PluginVersion).await?;
            let id = version_id(spelling(types_of(&ids), call.word("type")), call);
            let row = app.store.get(Kind::PluginVersion, &id).await?;
            row.map(|row| text(&current(&row)))
        } else {
            narrowed(&read(app, &mut held).await?, call, part)
        };
        let body = Bytes::from(found.ok_or_else(Refusal::not_found)?);
        held.resize(body.len())?;
        let etag = etag(&body);
        let scope = Scope {
            kind: Kind::PluginVersion,
            organization: Uuid::nil(),
            cluster: Uuid::nil(),
        };
        Ok((CachedList::new(as_of, vec![scope], (body, etag), None), held))
    })
    .await
}

/// Reads all versions. They and the response have the same size, for which `held` is enlarged.
async fn read(app: &AppState, held: &mut Held) -> Result<Types, Error> {
    let (mut types, mut size) = (Types::new(), 0);
    let versions = Listed::Children(Kind::PluginVersion, "");
    let each = app.store.each(versions, i64::MIN, i64::MAX, |row| {
        let version = to_raw_value(&current(&row)).map_err(Error::internal)?;
        size += version.get().len();
        held.enlarge(2 * size)?;
        let mut words = row.id.splitn(3, '/').map(str::to_owned);
        let (plugin_type, implementation) = (words.next(), words.next());
        let implementations = types.entry(plugin_type.unwrap_or_default()).or_default();
        let versions = implementations.entry(implementation.unwrap_or_default());
        versions.or_default().push(version);
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

pub(super) async fn set_version(app: &AppState, call: &Call) -> Result<Response, Error> {
    let version = checked_version(call)?;
    let document: PluginVersion = parse(&call.body, Unknown::Refuse)?;
    if document.version != version {
        let reason = format!("is {}, must be {version} as in the path", document.version);
        return Err(Refusal::field("version", reason).into());
    }
    put(app, call, Kind::PluginVersion, as_map(&document)?).await
}

pub(super) async fn set_manifests(app: &AppState, call: &Call) -> Result<Response, Error> {
    checked_version(call)?;
    let document: PluginManifests = parse(&call.body, Unknown::Refuse)?;
    put(app, call, Kind::PluginManifests, as_map(&document)?).await?;
    Ok(Reply::nothing().into_response())
}

/// The manifests of a version, with the ETag that a replacement needs.
pub(super) async fn manifests(app: &AppState, call: &Call) -> Result<Response, Error> {
    let mut source = &app.store;
    let ids = source.ids_of(Kind::PluginVersion).await?;
    let id = version_id(spelling(types_of(&ids), call.word("type")), call);
    let held = hold_manifests(app, call, &[&id]).await?;
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

fn as_map(document: &impl serde::Serialize) -> Result<Map<String, Value>, Error> {
    let value = serde_json::to_value(document).map_err(Error::internal)?;
    Ok(value.as_object().cloned().unwrap_or_default())
}

async fn put(app: &AppState, call: &Call, kind: Kind, spec: Map<String, Value>) -> Result<Response, Error> {
    let (owner, plugin_type) = (call.owner(), call.word("type").to_owned());
    let (rest, condition) = (version_id("", call), call.condition());
    write(app, call, async move |transaction| {
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

pub(super) async fn delete_version(app: &AppState, call: &Call) -> Result<Response, Error> {
    let (plugin_type, rest) = (call.word("type").to_owned(), version_id("", call));
    let condition = call.condition();
    write(app, call, async move |transaction| {
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
