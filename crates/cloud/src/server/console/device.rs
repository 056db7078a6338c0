//! The page on which a person types the code of a program on another machine, sees which one it is, and decides (RFC
//! 8628).

use axum::extract::RawQuery;
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::command_line::refusal;
use super::fields::FormFields;
use super::page::{Page, csrf};
use super::session::{Posted, Session};
use crate::client::Path;

pub(super) async fn show(session: Session, RawQuery(query): RawQuery) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    let code = query.get("user_code").unwrap_or_default();
    page(&session, StatusCode::OK, &typing(&session, code))
}

/// Shows the program with the code; with a decision, grants or denies it the login.
pub(super) async fn decide(sent: Posted) -> Response {
    let (session, code) = (&sent.session, sent.form.get("user_code").unwrap_or_default());
    let approved = sent.form.filled("decision").map(|decision| decision == "approve");
    let mut body = json!({ "user_code": code });
    if let Some(approved) = approved {
        body["approved"] = Value::Bool(approved);
    }
    let path = Path::new(["account", "login-grants", "device"]);
    let program = match session.api.send(Method::PUT, path, Some(&body), None).await {
        Ok(answer) => answer.value,
        Err(problem) => {
            let content = html! {
                (refusal(&problem, "/device"))
                (typing(session, code))
            };
            return page(session, problem.status, &content);
        }
    };
    let text = |field: &str| program.get(field).and_then(Value::as_str).unwrap_or_default();
    let content = match approved {
        None => deciding(session, code, text("name"), text("address")),
        Some(true) => html! { p { (text("name")) " is signed in. You can close this page." } },
        Some(false) => html! { p { (text("name")) " is not signed in. You can close this page." } },
    };
    page(session, StatusCode::OK, &content)
}

fn page(session: &Session, status: StatusCode, content: &Markup) -> Response {
    let page = Page {
        title: "Sign in another machine",
        session: Some(session),
        organization: None,
        status,
    };
    page.with(content)
}

fn typing(session: &Session, code: &str) -> Markup {
    html! {
        p { "Type the code that tidewaiter cloud login --device shows." }
        p { "Never enter a code that somebody sent you: the sender would be signed in as you." }
        form.narrow method="post" action="/device" {
            (csrf(session))
            label for="user_code" { "Code" }
            input id="user_code" name="user_code" autocomplete="off" autocapitalize="characters" required value=(code);
            button type="submit" { "Continue" }
        }
    }
}

fn deciding(session: &Session, code: &str, name: &str, address: &str) -> Markup {
    html! {
        p { "Sign in " strong { (name) } " at the address " strong { (address) } " as " strong { (session.account.name) } "?" }
        p { "It can then do all that you can do. Deny if you did not start it yourself, just now, on that machine." }
        form.narrow method="post" action="/device" {
            (csrf(session))
            input type="hidden" name="user_code" value=(code);
            button type="submit" name="decision" value="approve" { "Sign in" }
            button type="submit" name="decision" value="deny" { "Deny" }
        }
    }
}
