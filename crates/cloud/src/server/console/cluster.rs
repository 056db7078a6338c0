//! One cluster: its node pools, nodes, labels, plugins, upgrades and API keys, and what its coordinator reports.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::api::{Answer, Problem};
use super::clusters::{report, status};
use super::controls::{ROWS, facts, next, table, time, with_query};
use super::labels::{Labelled, labels_table};
use super::page::failed;
use super::parts::{ago, breadcrumbs, live};
use super::value::text;
use super::visit::Visit;
use super::{keys, report as reported, upgrades};
use crate::client::Path;

/// What the API has of a cluster.
struct Found {
    cluster: Value,
    pools: Vec<Value>,
    nodes: Answer,
    labels: Vec<Value>,
    policies: Vec<Value>,
    plugins: Vec<Value>,
    /// The last ones, and the position before which there are more.
    upgrades: (Vec<Value>, Option<i64>),
    /// Only admins may list them.
    keys: Vec<Value>,
    report: Option<Value>,
}

/// The path of the cluster of a page in the API.
pub(super) fn path(visit: &Visit) -> Path {
    visit.list("clusters").below(visit.parameter("cluster"))
}

/// The path of a page of the cluster.
pub(super) fn here(visit: &Visit, rest: &str) -> String {
    visit.page_path(&format!("clusters/{}{rest}", visit.parameter("cluster")))
}

/// The pages above a page of the cluster.
pub(super) fn above(visit: &Visit, cluster: &Value) -> Markup {
    let (clusters, this) = (visit.page_path("clusters"), here(visit, ""));
    breadcrumbs(&[(clusters.as_str(), "Clusters"), (this.as_str(), text(cluster, "name"))])
}

/// An object of the API.
pub(super) async fn read(visit: &Visit, path: Path) -> Result<Value, Problem> {
    Ok(visit.api().get(path).await?.value)
}

async fn everything(visit: &Visit) -> Result<Found, Problem> {
    let path = path(visit);
    // First, so that a cluster that does not exist is one request.
    let cluster = read(visit, path.clone()).await?;
    let all = |segment| visit.api().all(path.clone().below(segment));
    let keys = async {
        if visit.is_admin() {
            all("api-keys").await
        } else {
            Ok(Vec::new())
        }
    };
    let (pools, labels, policies, plugins) = futures::try_join!(
        all("node-pools"),
        all("labels"),
        all("autoscaling-policies"),
        all("plugins")
    )?;
    let (upgrades, keys, nodes) = futures::try_join!(
        visit.upgrades(text(&cluster, "id")),
        keys,
        visit.part(path.clone().below("nodes"), ROWS)
    )?;
    let report = report(visit, path).await?;
    Ok(Found {
        cluster,
        pools,
        nodes,
        labels,
        policies,
        plugins,
        upgrades,
        keys,
        report,
    })
}

pub(super) async fn show(visit: Visit) -> Response {
    match everything(&visit).await {
        Ok(found) => visit.page(text(&found.cluster, "name"), Ok(content(&visit, &found))),
        Err(problem) => failed(Some(&visit.session), &problem),
    }
}

fn content(visit: &Visit, found: &Found) -> Markup {
    let labels = Labelled::cluster(visit, &found.cluster);
    html! {
        (above(visit, &found.cluster))
        div data-stream=(here(visit, "/events")) {
            (live("summary", &summary(visit, found)))
            h2 id="pools" { "Node pools" }
            (live("pool-list", &pools_table(visit, &found.pools)))
            h2 id="upgrades" { "Upgrades" }
            (live("upgrade-list", &upgrades::upgrades_table(visit, &found.upgrades.0)))
            @if let Some(older) = found.upgrades.1 {
                @let path = with_query(&here(visit, ""), &[("older", &*older.to_string())]);
                p { a rel="next" href=(path) { "Older upgrades" } }
            }
            (upgrades::create_form(visit))
            h2 id="nodes" { "Nodes" }
            (live("node-list", &nodes_table(&found.nodes, &found.pools, visit)))
            (next(&here(visit, ""), found.nodes.after.as_deref()))
            h2 id="labels" { "Labels" }
            (live("label-list", &labels_table(visit, &labels, &found.labels)))
            h2 id="plugins" { "Plugins" }
            (live("plugin-list", &plugins_table(&found.plugins)))
            h2 id="policies" { "Autoscaling policies" }
            (live("policy-list", &policies_table(&found.policies)))
            @if visit.is_admin() {
                h2 id="keys" { "API keys" }
                (keys::keys_table(visit, &found.keys))
            }
        }
    }
}

fn summary(visit: &Visit, found: &Found) -> Markup {
    let cluster = &found.cluster;
    let field = |name| html! { (text(cluster, name)) };
    html! {
        (facts(&[
            ("Health", status(cluster)),
            ("Version", field("version")),
            ("Environment", field("environment")),
            ("Provider", field("provider_name")),
            ("API server", field("api_server_address")),
            ("Created", time(text(cluster, "created_at"))),
            ("ID", html! { code { (text(cluster, "id")) } }),
        ]))
        @if let Some(report) = &found.report {
            (reported::section(visit, report))
        }
    }
}

fn pools_table(visit: &Visit, pools: &[Value]) -> Markup {
    let rows = html! {
        @for pool in pools {
            tr {
                td { a href=(here(visit, &format!("/pools/{}", text(pool, "id")))) title=(text(pool, "id")) {
                    (text(pool, "name"))
                } }
                td { (text(pool, "kubernetes_mode")) }
                td { (number(pool, "count")) }
                td { (text(pool, "kubernetes_version")) }
                td { (status(pool)) }
                td { (autoscaling(pool)) }
            }
        }
    };
    let headers = ["Name", "Mode", "Nodes", "Version", "Status", "Autoscaling"];
    html! {
        @if pools.is_empty() { p.empty { "There are no node pools." } } @else {
            (table("Node pools", &headers, &rows))
        }
    }
}

/// A number of an object; empty if it has none.
pub(super) fn number(object: &Value, field: &str) -> String {
    object
        .get(field)
        .and_then(Value::as_u64)
        .map(|number| number.to_string())
        .unwrap_or_default()
}

/// The limits of the number of nodes of a pool, if it is scaled automatically.
pub(super) fn autoscaling(pool: &Value) -> Markup {
    let autoscaling = pool.get("autoscaling").unwrap_or(&Value::Null);
    let is = |field| autoscaling.get(field) == Some(&Value::Bool(true));
    html! {
        @if is("enabled") {
            (number(autoscaling, "min_nodes")) " to " (number(autoscaling, "max_nodes"))
            @if is("suspended") { ", suspended" }
        } @else { "off" }
    }
}

/// The nodes of a page of a list.
pub(super) fn nodes_table(nodes: &Answer, pools: &[Value], visit: &Visit) -> Markup {
    let nodes = nodes.items();
    let pool = |node: &Value| pools.iter().find(|pool| text(pool, "id") == text(node, "node_pool_id"));
    let rows = html! {
        @for node in nodes {
            tr {
                td title=(text(node, "id")) {
                    @if text(node, "name").is_empty() { code { (text(node, "id")) } } @else { (text(node, "name")) }
                }
                td { @if let Some(pool) = pool(node) { (text(pool, "name")) } }
                td { (status(node)) }
                td { (ago(text(node, "updated_at"), visit.session.now)) }
            }
        }
    };
    html! {
        @if nodes.is_empty() { p.empty { "There are no nodes." } } @else {
            (table("Nodes", &["Name", "Node pool", "Status", "Changed"], &rows))
        }
    }
}

fn plugins_table(plugins: &[Value]) -> Markup {
    let rows = html! {
        @for plugin in plugins {
            tr {
                td title=(text(plugin, "id")) { (text(plugin, "type")) }
                td { (text(plugin, "implementation")) }
                td { (text(plugin, "version")) }
                td { (text(plugin, "description")) }
            }
        }
    };
    html! {
        @if plugins.is_empty() { p.empty { "There are no plugins." } } @else {
            (table("Plugins", &["Type", "Implementation", "Version", "Description"], &rows))
        }
    }
}

/// Autoscaling policies.
pub(super) fn policies_table(policies: &[Value]) -> Markup {
    let rows = html! {
        @for policy in policies {
            tr {
                td title=(text(policy, "id")) { (text(policy, "name")) }
                td { (text(policy, "metrics_backend")) }
                td { code { (text(policy, "metric")) } }
                td { (number(policy, "poll_interval")) " s" }
            }
        }
    };
    html! {
        @if policies.is_empty() { p.empty { "There are no autoscaling policies." } } @else {
            (table("Autoscaling policies", &["Name", "Backend", "Metric", "Interval"], &rows))
        }
    }
}

/// The change stream of the cluster.
pub(super) async fn events(visit: Visit) -> Response {
    let stream = path(&visit).below("events");
    visit.follow(stream).await
}
