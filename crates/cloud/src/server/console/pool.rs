//! One node pool: its nodes, its labels and its autoscaling policies.

use axum::response::Response;
use maud::{Markup, html};
use serde_json::Value;

use super::api::{Answer, Problem};
use super::cluster::{above, autoscaling, here, nodes_table, number, path, policies_table, read};
use super::clusters::status;
use super::controls::{ROWS, facts, next};
use super::labels::{Labelled, labels_table};
use super::page::failed;
use super::parts::live;
use super::value::text;
use super::visit::Visit;

/// What the API has of a node pool.
struct Found {
    cluster: Value,
    pool: Value,
    nodes: Answer,
    labels: Vec<Value>,
    policies: Vec<Value>,
}

async fn everything(visit: &Visit) -> Result<Found, Problem> {
    let below = path(visit).below("node-pools").below(visit.parameter("pool"));
    let (cluster, pool) = futures::try_join!(read(visit, path(visit)), read(visit, below.clone()))?;
    let (nodes, labels, policies) = futures::try_join!(
        visit.part(below.clone().below("nodes"), ROWS),
        visit.api().all(below.clone().below("labels")),
        visit.api().all(below.clone().below("autoscaling-policies"))
    )?;
    Ok(Found {
        cluster,
        pool,
        nodes,
        labels,
        policies,
    })
}

pub(super) async fn show(visit: Visit) -> Response {
    match everything(&visit).await {
        Ok(found) => visit.page(text(&found.pool, "name"), Ok(content(&visit, &found))),
        Err(problem) => failed(Some(&visit.session), &problem),
    }
}

fn content(visit: &Visit, found: &Found) -> Markup {
    let pool = &found.pool;
    let labels = Labelled::pool(visit, &found.cluster, pool);
    let page = here(visit, &format!("/pools/{}", visit.parameter("pool")));
    html! {
        (above(visit, &found.cluster))
        div data-stream=(here(visit, "/events")) {
            (live("summary", &facts(&[
                ("Status", status(pool)),
                ("Mode", html! { (text(pool, "kubernetes_mode")) }),
                ("Version", html! { (text(pool, "kubernetes_version")) }),
                ("Nodes", html! { (number(pool, "count")) }),
                ("Autoscaling", autoscaling(pool)),
                ("ID", html! { code { (text(pool, "id")) } }),
            ])))
            h2 id="nodes" { "Nodes" }
            (live("node-list", &nodes_table(&found.nodes, std::slice::from_ref(pool), visit)))
            (next(&page, found.nodes.after.as_deref()))
            h2 id="labels" { "Labels" }
            (live("label-list", &labels_table(visit, &labels, &found.labels)))
            h2 id="policies" { "Autoscaling policies" }
            (live("policy-list", &policies_table(&found.policies)))
        }
    }
}
