//! The API keys of a cluster. A key is in one page alone: the response to the form that creates it.

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::Value;

use super::api::Problem;
use super::change::{Change, Review, submit};
use super::cluster::{above, here, path, read};
use super::controls::{button, table};
use super::page::failed;
use super::parts::ago;
use super::value::text;
use super::visit::{Sent, Visit};

/// The keys without their texts.
pub(super) fn keys_table(visit: &Visit, keys: &[Value]) -> Markup {
    let rows = html! {
        @for key in keys {
            tr {
                td { code { (text(key, "id")) } }
                td { (ago(text(key, "created_at"), visit.session.now)) }
                td { (button(&visit.session, &here(visit, &format!("/keys/{}/delete", text(key, "id"))), "Delete")) }
            }
        }
    };
    html! {
        p { "A coordinator authenticates with an API key. A new one leaves the others as they are, and is shown once." }
        @if !keys.is_empty() { (table("API keys", &["ID", "Created", "Change"], &rows)) }
        div.actions { (button(&visit.session, &here(visit, "/keys"), "Create an API key")) }
    }
}

/// Creates a key, and shows it.
pub(super) async fn create(sent: Sent) -> Response {
    let visit = &sent.visit;
    let cluster = match read(visit, path(visit)).await {
        Ok(cluster) => cluster,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let list = path(visit).below("api-keys");
    let created = visit.api().send(Method::POST, list, None, None).await;
    let content = created.map(|answer| {
        html! {
            (above(visit, &cluster))
            p { "The key is shown only now. Store it in the Secret of the coordinator: anyone who has it acts as the
                cluster." }
            pre.secret tabindex="0" role="region" aria-label="API key" { code { (text(&answer.value, "api_key")) } }
            p { a href=(here(visit, "")) { "Back to the cluster" } }
        }
    });
    visit.page("New API key", content)
}

pub(super) async fn delete(sent: Sent) -> Response {
    let (visit, id) = (&sent.visit, sent.visit.parameter("id"));
    let change = Change {
        method: Method::DELETE,
        path: path(visit).below("api-keys").below(id),
        body: None,
        then: here(visit, ""),
    };
    let review = async {
        let cluster = read(visit, path(visit)).await?;
        let effect = html! {
            p { "The API key " code { (id) } " of the cluster " strong { (text(&cluster, "name")) }
                " is deleted. Its clients are refused at once: a coordinator with this key no longer follows the cloud." }
        };
        Ok::<_, Problem>(Review::new("Delete the API key", effect))
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}
