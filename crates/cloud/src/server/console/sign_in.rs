//! Signing in and out.

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::Console;
use super::api::Problem;
use super::fields::FormFields;
use super::page::{Page, problem};
use super::providers::buttons;
use super::second_factor::ask;
use super::see_other;
use super::session::{Posted, UnauthenticatedForm, begin, end, own_path};
use crate::client::Path;

pub(super) async fn show(State(console): State<Console>, RawQuery(query): RawQuery) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    form(&console, own_path(query.get("return_to").unwrap_or("/")), "", None)
}

/// Signs in with an e-mail address and a password.
pub(super) async fn with_password(State(console): State<Console>, sent: UnauthenticatedForm) -> Response {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let (email, return_to) = (field("email"), own_path(field("return_to")));
    let login = json!({ "email": email, "password": sent.form.secret("password").unwrap_or_default() });
    let path = Path::new(["login", "password"]);
    match sent.api.send(Method::POST, path, Some(&login), None).await {
        Ok(answer) => {
            if let Some(step) = answer.value.get("second_factor") {
                return ask(step, return_to);
            }
            let mut response = see_other(return_to);
            begin(
                &mut response,
                answer.value.get("token").and_then(Value::as_str).unwrap_or_default(),
            );
            response
        }
        Err(problem) => form(&console, return_to, email, Some(&problem)),
    }
}

/// Ends the session here, and its token everywhere.
pub(super) async fn sign_out(sent: Posted) -> Response {
    let path = Path::new(["account", "tokens", "current"]);
    let ended = sent.session.api.send(Method::DELETE, path, None, None).await;
    let mut response = match ended {
        Ok(_) => see_other("/sign-in"),
        Err(problem) => super::page::failed(Some(&sent.session), &problem),
    };
    end(&mut response);
    response
}

pub(super) fn form(console: &Console, return_to: &str, email: &str, refused: Option<&Problem>) -> Response {
    let page = Page {
        title: "Sign in",
        session: None,
        organization: None,
        status: refused.map_or(StatusCode::OK, |problem| problem.status),
    };
    let of = |field: &str| refused.filter(|refused| refused_field(refused) == field);
    let message = |field: &str| of(field).map(|refused| refused.message.as_str());
    let general = of("");
    page.with(&html! {
        @if let Some(refused) = general { (problem(refused)) }
        form.narrow method="post" action="/sign-in" {
            input type="hidden" name="return_to" value=(return_to);
            label {
                "E-mail address"
                (input("email", "email", "username", email, message("email"), email.is_empty()))
            }
            label {
                "Password"
                (input("password", "password", "current-password", "", message("password"), !email.is_empty()))
            }
            button type="submit" { "Sign in" }
        }
        (buttons(console, return_to))
    })
}

/// The field beside which the refusal is shown; empty if it concerns no single one.
fn refused_field(refused: &Problem) -> &str {
    let field = refused.field.as_str();
    if ["email", "password"].contains(&field) {
        field
    } else {
        ""
    }
}

/// A field with its error.
fn input(name: &str, kind: &str, autocomplete: &str, value: &str, error: Option<&str>, is_first: bool) -> Markup {
    let id = format!("{name}-error");
    html! {
        input name=(name) type=(kind) autocomplete=(autocomplete) required value=(value) autofocus[is_first]
            aria-invalid=[error.map(|_| "true")] aria-describedby=[error.map(|_| &id)];
        @if let Some(error) = error { span.error id=(id) role="alert" { (error) } }
    }
}
