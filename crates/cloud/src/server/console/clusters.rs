//! The clusters of an organization, and how another one is attached.

use axum::extract::State;
use axum::response::Response;
use futures::future::join_all;
use maud::{Markup, html};
use serde_json::Value;

use super::Console;
use super::api::Problem;
use super::controls::{next, table};
use super::parts::{ago, badge, live};
use super::upgrades::{in_progress, upgrade_badge};
use super::value::text;
use super::visit::Visit;
use crate::client::Path;

/// The clusters of a page. Each takes two more requests, for its report and its upgrades.
const ROWS: usize = 25;

/// A cluster with what is known of it beside its object.
struct Row {
    cluster: Value,
    report: Option<Value>,
    upgrade: Option<Value>,
}

/// The report of the coordinator about the cluster at `path`; `None` if there is none.
pub(super) async fn report(visit: &Visit, path: Path) -> Option<Value> {
    visit
        .api()
        .get(path.below("report"))
        .await
        .ok()
        .map(|answer| answer.value)
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
    let page = visit.list("clusters").query("limit", ROWS);
    let answer = visit.api().get(match visit.query.filled("after") {
        Some(after) => page.query("after", after),
        None => page,
    });
    let mut answer = answer.await?;
    let clusters = answer.value.as_array_mut().map(std::mem::take).unwrap_or_default();
    let rows = join_all(clusters.into_iter().map(|cluster| row(visit, cluster))).await;
    Ok(html! {
        (live("clusters", &clusters_table(visit, &rows)))
        (next(&visit.page_path("clusters"), answer.after.as_deref()))
        @if visit.is_admin() { p { a.button href=(visit.page_path("attach")) { "Attach a cluster" } } }
    })
}

async fn row(visit: &Visit, cluster: Value) -> Row {
    let path = visit.list("clusters").below(text(&cluster, "id"));
    let upgrades = visit.api().all(path.clone().below("upgrades"));
    let (report, upgrades) = futures::join!(report(visit, path), upgrades);
    let upgrade = upgrades.unwrap_or_default().into_iter().rfind(in_progress);
    Row {
        cluster,
        report,
        upgrade,
    }
}

fn clusters_table(visit: &Visit, rows: &[Row]) -> Markup {
    let headers = ["Name", "Health", "Version", "Environment", "Last seen", "Upgrade"];
    let markup = html! {
        @for Row { cluster, report, upgrade } in rows {
            @let id = text(cluster, "id");
            tr {
                td { a href=(visit.page_path(&format!("clusters/{id}"))) title=(id) { (text(cluster, "name")) } }
                td { (status(cluster)) }
                td { (text(cluster, "version")) }
                td { (text(cluster, "environment")) }
                td { @if let Some(report) = report { (ago(text(report, "last_seen"), visit.session.now)) } }
                td {
                    @if let Some(upgrade) = upgrade {
                        @let path = visit.page_path(&format!("clusters/{id}/upgrades/{}", text(upgrade, "id")));
                        a href=(path) { (text(upgrade, "targetVersion")) } " " (upgrade_badge(upgrade))
                    }
                }
            }
        }
    };
    html! {
        @if rows.is_empty() { p.empty { "There are no clusters." } } @else { (table("Clusters", &headers, &markup)) }
    }
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
