//! The catalogue of plugins: versions, the clusters that have them, and their manifests for operators.

use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::api::{Problem, TOO_LARGE};
use super::controls::{facts, next, table};
use super::parts::breadcrumbs;
use super::value::{list, text};
use super::visit::Visit;
use crate::client::Path;

/// The number of clusters whose plugins a page shows.
const CLUSTERS: usize = 50;
/// The maximum size of a document in a page, in bytes.
const MAX_SHOWN: usize = 256 * 1024;

pub(super) async fn show_all(visit: Visit) -> Response {
    let content = visit.api().get(Path::new(["plugins"])).await.map(|answer| {
        let definitions = answer.value.as_object().into_iter().flat_map(serde_json::Map::values);
        let definitions = definitions.filter_map(Value::as_array).flatten();
        let rows = html! {
            @for definition in definitions {
                @let (plugin_type, implementation) = (text(definition, "type"), text(definition, "implementation"));
                tr {
                    td { (plugin_type) }
                    @let path = visit.page_path(&format!("catalogue/{plugin_type}/{implementation}"));
                    td { a href=(path) { (implementation) } }
                    td { @for version in list(definition, "versions") { (name(version)) " " } }
                }
            }
        };
        table("Plugins", &["Type", "Implementation", "Versions"], &rows)
    });
    visit.page("Catalogue", content)
}

fn name(version: &Value) -> Markup {
    let is_disabled = version.get("disabled") == Some(&Value::Bool(true));
    html! { (text(version, "version")) @if is_disabled { " (disabled)" } }
}

/// The path of the plugin of the page in the API.
fn definition_path(visit: &Visit) -> Path {
    let (plugin_type, implementation) = (visit.parameter("type"), visit.parameter("implementation"));
    Path::new(["plugins", plugin_type, "implementations", implementation])
}

fn here(visit: &Visit) -> String {
    let (plugin_type, implementation) = (visit.parameter("type"), visit.parameter("implementation"));
    visit.page_path(&format!("catalogue/{plugin_type}/{implementation}"))
}

pub(super) async fn show(visit: Visit) -> Response {
    let content = definition(&visit).await;
    visit.page("Plugin", content)
}

async fn definition(visit: &Visit) -> Result<Markup, Problem> {
    let definition = visit.api().get(definition_path(visit)).await?.value;
    let here = here(visit);
    let versions = html! {
        @for version in list(&definition, "versions") {
            @let upgrades = version.pointer("/compatibility/upgrades").and_then(Value::as_array);
            tr {
                td { a href={ (here) "/" (text(version, "version")) } { (name(version)) } }
                td { (kubernetes(version)) }
                td { @for to in upgrades.into_iter().flatten() { (to.as_str().unwrap_or_default()) " " } }
            }
        }
    };
    let answer = visit.part(visit.list("clusters"), CLUSTERS).await?;
    let installed = installed(visit, answer.items()).await?;
    Ok(html! {
        (breadcrumbs(&[(&*visit.page_path("catalogue"), "Catalogue")]))
        (facts(&[
            ("Type", html! { (text(&definition, "type")) }),
            ("Implementation", html! { (text(&definition, "implementation")) }),
        ]))
        h2 { "Versions" }
        (table("Versions", &["Version", "Kubernetes", "Can be upgraded to"], &versions))
        h2 { "Clusters that have it" }
        (table("Clusters", &["Cluster", "Version"], &installed))
        (next(&here, answer.after.as_deref()))
    })
}

/// The rows of the clusters that have the plugin of the page.
async fn installed(visit: &Visit, clusters: &[Value]) -> Result<Markup, Problem> {
    let ids: Vec<&str> = clusters.iter().map(|cluster| text(cluster, "id")).collect();
    let found = visit.plugins(&ids, visit.parameter("implementation")).await?;
    let has = |cluster: &Value, of: &str, plugin: &Value| of == text(cluster, "id") && is_shown(visit, plugin);
    Ok(html! {
        @for cluster in clusters {
            @for (_, plugin) in found.iter().filter(|(of, plugin)| has(cluster, of, plugin)) {
                tr {
                    td { (visit.link("clusters", cluster)) }
                    td { (text(plugin, "version")) }
                }
            }
        }
    })
}

fn is_shown(visit: &Visit, plugin: &Value) -> bool {
    text(plugin, "type").eq_ignore_ascii_case(visit.parameter("type"))
        && text(plugin, "implementation") == visit.parameter("implementation")
}

/// The versions of Kubernetes that a version of a plugin is compatible with.
fn kubernetes(version: &Value) -> Markup {
    let bound = |end: &str| {
        version
            .pointer(&format!("/compatibility/kubernetes/{end}"))
            .and_then(Value::as_str)
    };
    let bound = |end| bound(end).filter(|version| !version.is_empty());
    html! {
        @match (bound("min"), bound("max")) {
            (Some(min), Some(max)) => { (min) " to " (max) }
            (Some(min), None) => { "from " (min) }
            (None, Some(max)) => { "up to " (max) }
            (None, None) => { "all versions" }
        }
    }
}

/// The path of the version of the page in the API.
fn version_path(visit: &Visit) -> Path {
    let versions = definition_path(visit).below("versions");
    versions.below(visit.parameter("version"))
}

pub(super) async fn show_version(visit: Visit) -> Response {
    let content = version(&visit).await;
    visit.page("Version of a plugin", content)
}

async fn version(visit: &Visit) -> Result<Markup, Problem> {
    let path = version_path(visit);
    let version = visit.api().get(path.clone()).await?.value;
    let path = path.below("manifests");
    let manifests = match visit.api().get(path.clone()).await {
        Ok(answer) => Some(document(&answer.value, &path)),
        Err(problem) if problem.status == TOO_LARGE => Some(too_large(&path)),
        Err(problem) if [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&problem.status) => None,
        Err(problem) => return Err(problem),
    };
    let schema = version.get("configuration_schema").unwrap_or(&Value::Null);
    Ok(html! {
        (facts(&[
            ("Plugin", html! { a href=(here(visit)) { (visit.parameter("implementation")) } }),
            ("Version", name(&version)),
            ("Kubernetes", kubernetes(&version)),
        ]))
        h2 { "Configuration" }
        (document(schema, &version_path(visit)))
        @if let Some(manifests) = &manifests {
            h2 { "Manifests" }
            (manifests)
        }
    })
}

/// The document at `path` as text.
fn document(document: &Value, path: &Path) -> Markup {
    let text = serde_json::to_string_pretty(document).unwrap_or_default();
    if text.len() > MAX_SHOWN {
        return too_large(path);
    }
    html! { pre tabindex="0" { (text) } }
}

/// The place of a document that no page shows.
fn too_large(path: &Path) -> Markup {
    html! { p.hint { "Too large for a page: get " code { (path.uri()) } " of the API." } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_document_is_named_and_not_shown() {
        let path = Path::new(["plugins"]);
        let shown = |length: usize| document(&Value::from("x".repeat(length)), &path).into_string();
        assert!(shown(MAX_SHOWN - 2).contains("xxx"));
        assert_eq!(shown(MAX_SHOWN - 1), too_large(&path).into_string());
    }
}
