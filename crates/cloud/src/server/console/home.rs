//! The first page: the organizations of the signed-in person.

use axum::response::Response;
use http::StatusCode;
use maud::html;
use serde_json::Value;

use super::page::{Page, failed};
use super::see_other;
use super::session::Session;
use crate::client::Path;

/// The organizations, or the only one.
pub(super) async fn show(session: Session) -> Response {
    let answer = match session.api.get(Path::new(["organizations"])).await {
        Ok(answer) => answer,
        Err(problem) => return failed(Some(&session), &problem),
    };
    let organizations = answer.value.as_array().map(Vec::as_slice).unwrap_or_default();
    let text = |object: &Value, field| object.get(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    if let [only] = organizations {
        return see_other(&format!("/organizations/{}/clusters", text(only, "id")));
    }
    let page = Page {
        title: "Organizations",
        session: Some(&session),
        organization: None,
        status: StatusCode::OK,
    };
    page.with(&html! {
        @if organizations.is_empty() {
            p { "You are a member of no organization: ask an admin for an invitation." }
        }
        ul.cards {
            @for organization in organizations {
                li { a href={ "/organizations/" (text(organization, "id")) "/clusters" } { (text(organization, "name")) } }
            }
        }
    })
}
