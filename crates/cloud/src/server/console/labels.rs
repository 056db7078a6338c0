//! The labels of a cluster or of a node pool, and their changes.

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::api::{Answer, Problem};
use super::change::{Change, Review, submit};
use super::cluster::{here, path, read};
use super::controls::{button, form, input, table};
use super::page::failed;
use super::parts::changed;
use super::session::Session;
use super::value::text;
use super::visit::{Sent, Visit};
use crate::client::Path;
use crate::models::{CLUSTER_LABEL_PREFIX, Kind, NODE_POOL_LABEL_PREFIX, OrgRole};

/// The object whose nodes have the labels.
pub(super) struct Labelled {
    /// The labels in the API.
    list: Path,
    /// The path of their pages.
    page: String,
    /// The nodes, for people.
    nodes: String,
    prefix: &'static str,
    writers: OrgRole,
}

impl Labelled {
    pub(super) fn cluster(visit: &Visit, cluster: &Value) -> Self {
        Self {
            list: path(visit).below("labels"),
            page: here(visit, ""),
            nodes: format!("all nodes of the cluster {}", text(cluster, "name")),
            prefix: CLUSTER_LABEL_PREFIX,
            writers: Kind::ClusterLabel.facts().writers,
        }
    }

    pub(super) fn pool(visit: &Visit, cluster: &Value, pool: &Value) -> Self {
        let id = visit.parameter("pool");
        let (pool, cluster) = (text(pool, "name"), text(cluster, "name"));
        Self {
            list: path(visit).below("node-pools").below(id).below("labels"),
            page: here(visit, &format!("/pools/{id}")),
            nodes: format!("all nodes of the node pool {pool} of the cluster {cluster}"),
            prefix: NODE_POOL_LABEL_PREFIX,
            writers: Kind::NodePoolLabel.facts().writers,
        }
    }

    /// The object of a page, which has a node pool in its path or none.
    async fn of(visit: &Visit) -> Result<Self, Problem> {
        let cluster = read(visit, path(visit)).await?;
        let pool = visit.parameter("pool");
        if pool.is_empty() {
            return Ok(Self::cluster(visit, &cluster));
        }
        let pool = read(visit, path(visit).below("node-pools").below(pool)).await?;
        Ok(Self::pool(visit, &cluster, &pool))
    }
}

/// The labels, with forms to change them for those who may.
pub(super) fn labels_table(visit: &Visit, of: &Labelled, labels: &[Value]) -> Markup {
    let may = visit.may(of.writers);
    let rows = html! {
        @for label in labels { (label_row(&visit.session, of, label, may)) }
    };
    let headers: &[&str] = if may {
        &["Key", "Value", "Change"]
    } else {
        &["Key", "Value"]
    };
    html! {
        @if labels.is_empty() { p.empty { "There are no labels." } } @else { (table("Labels", headers, &rows)) }
        @if may {
            (form(&visit.session, &format!("{}/labels", of.page), "Add a label", &html! {
                (input("Key", "key", of.prefix))
                (input("Value", "value", ""))
            }))
        }
    }
}

fn label_row(session: &Session, of: &Labelled, label: &Value, may: bool) -> Markup {
    let key = text(label, "key");
    let page = format!("{}/labels/{}", of.page, text(label, "id"));
    html! {
        tr {
            td title=(text(label, "id")) { code { (key) } }
            td { code { (text(label, "value")) } }
            @if may {
                td {
                    div.actions {
                        (form(session, &page, "Change", &html! {
                            input name="value" value=(text(label, "value")) aria-label={ "Value of " (key) };
                        }))
                        (button(session, &format!("{page}/delete"), "Delete"))
                    }
                }
            }
        }
    }
}

pub(super) async fn create(sent: Sent) -> Response {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let of = match Labelled::of(&sent.visit).await {
        Ok(of) => of,
        Err(problem) => return failed(Some(&sent.visit.session), &problem),
    };
    let effect = html! {
        p { "The label " code { (field("key")) "=" (field("value")) } " is set on " (of.nodes) "." }
    };
    let change = Change {
        method: Method::POST,
        path: of.list,
        body: Some(json!({ "key": field("key"), "value": field("value") })),
        then: of.page,
    };
    let review = async { Ok(Review::new("Add the label", effect)) };
    submit(
        (&sent.visit.session, Some(&sent.visit.place)),
        &sent.form,
        change,
        review,
    )
    .await
}

pub(super) async fn update(sent: Sent) -> Response {
    let value = sent.form.get("value").unwrap_or_default().to_owned();
    change(&sent, "Change the label", |label, nodes| {
        let effect = html! {
            p { "The value of " code { (text(label, "key")) } " changes on " (nodes) ": "
                (changed(text(label, "value"), &value)) }
        };
        (Method::PATCH, Some(json!({ "value": value })), effect)
    })
    .await
}

pub(super) async fn delete(sent: Sent) -> Response {
    change(&sent, "Delete the label", |label, nodes| {
        let effect = html! {
            p { "The label " code { (text(label, "key")) "=" (text(label, "value")) } " is removed from " (nodes) "." }
        };
        (Method::DELETE, None, effect)
    })
    .await
}

/// The label of the page, and the object whose nodes have it.
async fn found(visit: &Visit) -> Result<(Labelled, Answer), Problem> {
    let of = Labelled::of(visit).await?;
    let label = visit.api().get(of.list.clone().below(visit.parameter("id"))).await?;
    Ok((of, label))
}

/// Reviews or makes a change of the label of the page.
async fn change(
    sent: &Sent,
    title: &str,
    request: impl FnOnce(&Value, &str) -> (Method, Option<Value>, Markup),
) -> Response {
    let visit = &sent.visit;
    let (of, label) = match found(visit).await {
        Ok(found) => found,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let (method, body, effect) = request(&label.value, &of.nodes);
    let change = Change {
        method,
        path: of.list.below(visit.parameter("id")),
        body,
        then: of.page,
    };
    let review = async { Ok(Review::new(title, effect).of_version(label.etag)) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}
