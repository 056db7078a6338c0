//! The catalogue of plugins: versions, the clusters that have them, and their manifests for operators.

use axum::response::Response;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::api::Problem;
use super::controls::{facts, next, table};
use super::parts::breadcrumbs;
use super::value::{list, text};
use super::visit::Visit;
use crate::client::Path;

/// The number of clusters whose plugins a page shows, and of those that are read at once.
const CLUSTERS: usize = 50;
const AT_ONCE: usize = 8;

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
    let path = visit.list("clusters").query("limit", CLUSTERS);
    let answer = visit.api().get(match visit.query.filled("after") {
        Some(after) => path.query("after", after),
        None => path,
    });
    let answer = answer.await?;
    let installed = installed(visit, answer.value.as_array().map(Vec::as_slice).unwrap_or_default()).await?;
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
    let plugins = |cluster: Value| async move {
        let path = visit.list("clusters").below(text(&cluster, "id")).below("plugins");
        let plugins = visit.api().all(path).await?;
        Ok::<_, Problem>((cluster, plugins))
    };
    let reads: Vec<_> = clusters.iter().cloned().map(plugins).collect();
    let found: Vec<(Value, Vec<Value>)> = stream::iter(reads).buffered(AT_ONCE).try_collect().await?;
    Ok(html! {
        @for (cluster, plugins) in &found {
            @for plugin in plugins.iter().filter(|plugin| is_shown(visit, plugin)) {
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

pub(super) async fn show_version(visit: Visit) -> Response {
    let content = version(&visit).await;
    visit.page("Version of a plugin", content)
}

async fn version(visit: &Visit) -> Result<Markup, Problem> {
    let path = definition_path(visit)
        .below("versions")
        .below(visit.parameter("version"));
    let version = visit.api().get(path.clone()).await?.value;
    let manifests = match visit.api().get(path.below("manifests")).await {
        Ok(answer) => Some(answer.value),
        Err(problem) if [StatusCode::FORBIDDEN, StatusCode::NOT_FOUND].contains(&problem.status) => None,
        Err(problem) => return Err(problem),
    };
    Ok(html! {
        (facts(&[
            ("Plugin", html! { a href=(here(visit)) { (visit.parameter("implementation")) } }),
            ("Version", name(&version)),
            ("Kubernetes", kubernetes(&version)),
        ]))
        h2 { "Configuration" }
        pre tabindex="0" { (document(version.get("configuration_schema"))) }
        @if manifests.is_some() {
            h2 { "Manifests" }
            pre tabindex="0" { (document(manifests.as_ref())) }
        }
    })
}

/// The document as text.
fn document(document: Option<&Value>) -> String {
    serde_json::to_string_pretty(&document).unwrap_or_default()
}
