//! The clusters of an organization, and how another one is attached.

use std::collections::HashMap;

use axum::extract::State;
use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::Console;
use super::api::{Problem, if_found};
use super::controls::{next, table};
use super::parts::{ago, badge, follows, live};
use super::report::synced;
use super::upgrades::upgrade_badge;
use super::value::text;
use super::visit::Visit;
use crate::client::Path;
use crate::models::Kind;
use crate::reports::{agents, held, plugins};

/// The number of clusters of a page, whose reports may be large.
const ROWS: usize = 25;

/// The kinds whose changes the page shows at once.
const FOLLOWED: [Kind; 2] = [Kind::Cluster, Kind::Upgrade];

/// The report of the coordinator about the cluster at `path`; `None` before its first report.
pub(super) async fn report(visit: &Visit, path: Path) -> Result<Option<Value>, Problem> {
    let report = if_found(visit.api().get(path.below("report")).await)?;
    Ok(report.map(|answer| answer.value))
}

/// The status of an object: its type and its message.
pub(super) fn status(object: &Value) -> Markup {
    let status = object.get("status").unwrap_or(&Value::Null);
    let message = text(status, "message");
    html! {
        (badge(text(status, "type")))
        @if !message.is_empty() { span.hint { (message) } }
    }
}

pub(super) async fn show(visit: Visit) -> Response {
    let content = content(&visit).await;
    visit.page("Clusters", content)
}

async fn content(visit: &Visit) -> Result<Markup, Problem> {
    let answer = visit.part(visit.list("clusters"), ROWS).await?;
    let clusters = answer.items();
    let ids: Vec<&str> = clusters.iter().map(|cluster| text(cluster, "id")).collect();
    let (reports, upgrades) = futures::try_join!(visit.reports(&ids), visit.open_upgrades(&ids))?;
    Ok(html! {
        (follows(&visit.page_path("events"), &FOLLOWED))
        (live("clusters", &clusters_table(visit, clusters, &reports, &upgrades)))
        (next(&visit.page_path("clusters"), answer.after.as_deref()))
        @if visit.is_admin() { p { a.button href=(visit.page_path("attach")) { "Attach a cluster" } } }
    })
}

/// The clusters, with their reports and their upgrades that have not ended.
fn clusters_table(
    visit: &Visit,
    clusters: &[Value],
    reports: &HashMap<String, Value>,
    upgrades: &HashMap<String, Value>,
) -> Markup {
    let headers = [
        "Name",
        "Health",
        "Version",
        "Environment",
        "Synced",
        "Held",
        "Plugins",
        "Agents",
        "Last seen",
        "Upgrade",
    ];
    let markup = html! {
        @for cluster in clusters {
            @let id = text(cluster, "id");
            @let report = reports.get(id).unwrap_or(&Value::Null);
            tr {
                td { a href=(visit.page_path(&format!("clusters/{id}"))) title=(id) { (text(cluster, "name")) } }
                td { (status(cluster)) }
                td { (text(cluster, "version")) }
                td { (text(cluster, "environment")) }
                td { (synced(report)) }
                td { (held(report).unwrap_or_default()) }
                td { (plugins(report).unwrap_or_default()) }
                td { (agents(report).unwrap_or_default()) }
                td { (ago(text(report, "reported_at"), visit.session.now)) }
                td {
                    @if let Some(upgrade) = upgrades.get(id) {
                        @let path = visit.page_path(&format!("clusters/{id}/upgrades/{}", text(upgrade, "id")));
                        a href=(path) { (text(upgrade, "targetVersion")) } " " (upgrade_badge(upgrade))
                    }
                }
            }
        }
    };
    html! {
        @if clusters.is_empty() { p.empty { "There are no clusters." } } @else { (table("Clusters", &headers, &markup)) }
    }
}

/// The change stream of the organization.
pub(super) async fn events(visit: Visit) -> Response {
    let stream = visit.list("events");
    visit.follow(stream).await
}

/// The commands that attach a cluster: its manifests contain an API key, so that no page makes them.
pub(super) async fn attach(State(console): State<Console>, visit: Visit) -> Response {
    let server = console.app.parts.issuer.as_str().trim_end_matches('/').to_owned();
    let image = concat!("registry.example.com/tidewaiter:", env!("CARGO_PKG_VERSION"));
    let content = html! {
        p { "The command creates the cluster here, and a coordinator in it with a new API key. Run it where kubectl
            reaches the cluster, with the image in a registry from which the cluster pulls." }
        pre tabindex="0" role="region" aria-label="Commands" { code {
            "tidewaiter cloud login --server " (server) " " (visit.session.account.email) "\n"
            "tidewaiter cloud attach NAME --organization " (visit.place.id) " --image " (image)
            " | kubectl apply --server-side -f -"
        } }
        p { "The cluster is in the " a href=(visit.page_path("clusters")) { "list of clusters" }
            " as soon as the command has run." }
    };
    visit.page("Attach a cluster", Ok(content))
}
