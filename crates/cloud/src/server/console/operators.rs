//! The operators of the server, and its organizations.

use axum::extract::{Path as Segment, RawQuery};
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::api::{Api, Problem};
use super::change::{Change, Review, submit};
use super::controls::{button, form, input, required, table, time};
use super::directory::organization;
use super::fields::FormFields;
use super::page::{Page, failed};
use super::parts::done;
use super::session::{Posted, Session};
use super::usage;
use super::value::text;
use crate::client::Path;

const HERE: &str = "/operators";

pub(super) async fn show(session: Session, RawQuery(query): RawQuery) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    let page = Page {
        title: "Operators",
        session: Some(&session),
        organization: None,
        status: StatusCode::OK,
    };
    match content(&session, query.filled("after")).await {
        Ok(content) => page.with(&html! { (done(&query)) (content) }),
        Err(problem) => failed(Some(&session), &problem),
    }
}

async fn content(session: &Session, after: Option<&str>) -> Result<Markup, Problem> {
    // First, because only operators may read it.
    let operators = session.api.get(Path::new(["operators"])).await?.value;
    let organizations = usage::section(session, after).await?;
    Ok(html! {
        p { a href="/operators/audit" { "Audit of the server" } }
        h2 { "Organizations" }
        p {
            "An organization that is locked refuses changes, and one at a limit refuses more. Only its members see its \
             pages."
        }
        (organizations)
        (form(session, "/operators/organizations", "Create an organization", &required("Name", "name", "text")))
        h2 { "Operators" }
        (operator_table(session, operators.as_array().map(Vec::as_slice).unwrap_or_default()))
        (form(session, HERE, "Add an operator", &input("E-mail address in your organizations, or ID", "person", "")))
    })
}

fn operator_table(session: &Session, operators: &[Value]) -> Markup {
    let rows = html! {
        @for operator in operators {
            tr {
                td { (text(operator, "name")) }
                td { (text(operator, "email")) }
                td { (time(text(operator, "added_at"))) }
                td { code { (text(operator, "id")) } }
                td { (button(session, &format!("/operators/{}/remove", text(operator, "id")), "Remove")) }
            }
        }
    };
    table("Operators", &["Name", "E-mail address", "Since", "ID", ""], &rows)
}

fn change(method: Method, path: Path, body: Option<Value>) -> Change {
    Change {
        method,
        path,
        body,
        then: HERE.to_owned(),
    }
}

pub(super) async fn create_organization(sent: Posted) -> Response {
    let name = sent.form.get("name").unwrap_or_default();
    let effect = html! { p { "An organization " strong { (name) } ", whose owner you become." } };
    let change = change(
        Method::POST,
        Path::new(["organizations"]),
        Some(json!({ "name": name })),
    );
    let review = async { Ok(Review::new("Create the organization", effect)) };
    submit((&sent.session, None), &sent.form, change, review).await
}

pub(super) async fn lock(sent: Posted) -> Response {
    let id = sent.form.get("id").unwrap_or_default();
    let locked = sent.form.get("locked") == Some("true");
    let change = change(
        Method::PUT,
        organization(id).below("locked"),
        Some(json!({ "locked": locked })),
    );
    let review = async {
        let name = usage::name_of(&sent.session.api, id).await?;
        let (title, effect) = if locked {
            (
                "Lock the organization",
                "refuses every change, until an operator unlocks it.",
            )
        } else {
            ("Unlock the organization", "accepts changes again.")
        };
        let effect = html! { p { "The organization " strong { (name) } " " (effect) } };
        Ok::<_, Problem>(Review::new(title, effect))
    };
    submit((&sent.session, None), &sent.form, change, review).await
}

/// The user with this e-mail address in an organization of the operator; otherwise the id that was entered.
async fn find(api: &Api, name: &str) -> Result<String, Problem> {
    if !name.contains('@') {
        return Ok(name.to_owned());
    }
    let organizations = api.get(Path::new(["organizations"])).await?.value;
    for own in organizations.as_array().into_iter().flatten() {
        let users = api.all(organization(text(own, "id")).below("users")).await?;
        if let Some(user) = users.iter().find(|user| text(user, "email").eq_ignore_ascii_case(name)) {
            return Ok(text(user, "id").to_owned());
        }
    }
    Ok(name.to_owned())
}

pub(super) async fn add(sent: Posted) -> Response {
    let name = sent.form.get("person").unwrap_or_default();
    let id = match find(&sent.session.api, name).await {
        Ok(id) => id,
        Err(problem) => return failed(Some(&sent.session), &problem),
    };
    let effect = html! {
        p { "The user " strong { (name) } " (" code { (id) } ") administers all organizations of this server: the user \
            creates, locks and joins them, changes the catalogue, and adds and removes operators." }
    };
    let change = change(Method::PUT, Path::new(["operators"]).below(&id), None);
    let review = async { Ok(Review::new("Add the operator", effect)) };
    submit((&sent.session, None), &sent.form, change, review).await
}

pub(super) async fn remove(Segment(id): Segment<String>, sent: Posted) -> Response {
    let change = change(Method::DELETE, Path::new(["operators"]).below(&id), None);
    let review = async {
        let operators = sent.session.api.get(Path::new(["operators"])).await?.value;
        let operator = operators
            .as_array()
            .into_iter()
            .flatten()
            .find(|operator| text(operator, "id") == id);
        let name = operator.map_or(&*id, |operator| text(operator, "name"));
        let effect = html! { p { strong { (name) } " is no operator any more. Memberships and logins stay." } };
        Ok::<_, Problem>(Review::new("Remove the operator", effect))
    };
    submit((&sent.session, None), &sent.form, change, review).await
}
