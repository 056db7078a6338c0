//! The manifests of plugins, in responses to requests for a plugin.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::prelude::*;
use crate::models::{Document, MAX_SPEC};
use crate::server::http::response::respond_with;
use crate::server::http::response_budget::{Held, holding};
use crate::server::store::StoreError;

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
pub(super) async fn hold_manifests(app: &AppState, call: &Call, versions: &[&str]) -> Result<Held, Error> {
    let mut largest = 0;
    for version in versions {
        let size = app.store.size(Kind::PluginManifests, version).await?;
        largest = largest.max(size.try_into().unwrap_or(usize::MAX));
    }
    let bytes = largest.saturating_mul(2).saturating_add(MAX_SPEC);
    Ok(app.budget.hold(call, bytes).await?)
}

/// A part of the budget for the response to a new plugin, as [`hold_manifests`]; none for other kinds.
pub(super) async fn hold_created(app: &AppState, call: &Call, document: &Document) -> Result<Option<Held>, Error> {
    let version = document.uses.iter().find(|used| used.kind == Kind::PluginVersion);
    match version {
        Some(version) => hold_manifests(app, call, &[&version.id]).await.map(Some),
        None => Ok(None),
    }
}

/// A part of the budget for the response to a change of the plugin `id`, of which `body` may name another version; none
/// for other kinds.
pub(super) async fn hold_changed(
    app: &AppState,
    call: &Call,
    id: &str,
    body: &Map<String, Value>,
) -> Result<Option<Held>, Error> {
    if call.kind()? != Kind::Plugin {
        return Ok(None);
    }
    let before = app.store.get(Kind::Plugin, id).await?;
    let mut spec = before.map(|row| row.spec).unwrap_or_default();
    let before = version_of(&spec);
    if let Some(version) = body.get("version") {
        spec.insert("version".to_owned(), version.clone());
    }
    hold_manifests(app, call, &[&before, &version_of(&spec)])
        .await
        .map(Some)
}

/// Responds with a plugin and its manifests.
pub(super) async fn with_manifests(app: &AppState, call: &Call, plugin: Map<String, Value>) -> Result<Response, Error> {
    let (id, plugin) = (version_of(&plugin), text(&plugin));
    let held = hold_manifests(app, call, &[&id]).await?;
    let text = text_with_manifests(&mut &app.store, &id, &plugin).await?;
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
