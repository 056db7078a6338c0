//! The page on which a person signs in the command line of the same machine (RFC 8252). The answer goes to the listener
//! of the command line, in the address of a redirect, and nowhere else.

use axum::extract::{RawQuery, State};
use axum::response::Response;
use http::header::{CONTENT_SECURITY_POLICY, HeaderValue};
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};
use url::Url;

use super::api::Problem;
use super::fields::FormFields;
use super::page::{Page, csrf, failed, problem};
use super::session::{Posted, Session, sign_in_and_return_to};
use super::{Console, POLICY, see_other};
use crate::client::Path;
use crate::server::auth::loopback::loopback;
use crate::server::refusal::Refusal;

/// The request of a command line.
struct Asked {
    redirect: Url,
    challenge: String,
    state: String,
    /// The name of its machine.
    name: String,
}

impl Asked {
    /// The request in a query or a form. Without a listener of the own machine, there is none to answer to.
    fn read(fields: &FormFields) -> Result<Self, Problem> {
        let text = |name: &str| fields.filled(name).map(str::to_owned);
        let asked = || {
            Some(Self {
                redirect: loopback(fields.get("redirect_uri")?)?,
                challenge: text("code_challenge")?,
                state: text("state").filter(|state| state.len() <= 512)?,
                name: text("name")?,
            })
        };
        asked().ok_or_else(|| {
            let message = "the address is not one that tidewaiter cloud login made: run the command again";
            Refusal::new(StatusCode::BAD_REQUEST, message).into()
        })
    }

    fn pairs(&self) -> [(&str, &str); 4] {
        [
            ("redirect_uri", self.redirect.as_str()),
            ("code_challenge", &self.challenge),
            ("state", &self.state),
            ("name", &self.name),
        ]
    }

    /// The answer to the command line, with the issuer, so that it is not taken for that of another server (RFC 9207).
    fn answer(&self, console: &Console, name: &str, value: &str) -> Response {
        let tokens = console.app.authenticator.tokens.load();
        let mut location = self.redirect.clone();
        let mut query = location.query_pairs_mut();
        query.append_pair(name, value).append_pair("state", &self.state);
        query.append_pair("iss", tokens.issuer());
        drop(query);
        see_other(location.as_str())
    }
}

pub(super) async fn show(session: Session, RawQuery(query): RawQuery) -> Response {
    match Asked::read(&FormFields::parse(query.unwrap_or_default().as_bytes())) {
        Ok(asked) => form(&session, &asked, None),
        Err(problem) => failed(Some(&session), &problem),
    }
}

/// Answers the command line, with a code or that the person does not want it.
pub(super) async fn decide(State(console): State<Console>, sent: Posted) -> Response {
    let asked = match Asked::read(&sent.form) {
        Ok(asked) => asked,
        Err(problem) => return failed(Some(&sent.session), &problem),
    };
    if sent.form.get("decision") != Some("approve") {
        return asked.answer(&console, "error", "access_denied");
    }
    let body = json!({
        "name": asked.name,
        "redirect_uri": asked.redirect.as_str(),
        "code_challenge": asked.challenge,
    });
    let path = Path::new(["account", "login-grants"]);
    match sent.session.api.send(Method::POST, path, Some(&body), None).await {
        Ok(granted) => {
            let code = granted.value.get("code").and_then(Value::as_str);
            asked.answer(&console, "code", code.unwrap_or_default())
        }
        Err(problem) => form(&sent.session, &asked, Some(&problem)),
    }
}

fn form(session: &Session, asked: &Asked, refused: Option<&Problem>) -> Response {
    let page = Page {
        title: "Sign in the command line",
        session: Some(session),
        organization: None,
        status: refused.map_or(StatusCode::OK, |problem| problem.status),
    };
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    let again = format!("/sign-in/cli?{}", query.extend_pairs(asked.pairs()).finish());
    let mut response = page.with(&html! {
        @if let Some(refused) = refused { (refusal(refused, &again)) }
        p {
            "Sign in the command line on " strong { (asked.name) } " as " strong { (session.account.name) }
            " (" (session.account.email) ")?"
        }
        p { "It can then do all that you can do. Cancel if you did not start tidewaiter cloud login yourself." }
        form.narrow method="post" action="/sign-in/cli" {
            (csrf(session))
            @for (name, value) in asked.pairs() { input type="hidden" name=(name) value=(value); }
            button type="submit" name="decision" value="approve" { "Sign in" }
            button type="submit" name="decision" value="deny" { "Cancel" }
        }
    });
    permit_redirect(&mut response, &asked.redirect);
    response
}

/// The refusal, with the page to sign in if the login is too old to grant another one.
pub(super) fn refusal(refused: &Problem, return_to: &str) -> Markup {
    html! {
        (problem(refused))
        @if refused.status == StatusCode::FORBIDDEN {
            p { a href=(sign_in_and_return_to(return_to)) { "Sign in again" } }
        }
    }
}

/// Permits the form to lead to the listener: a browser checks the redirect after a form too.
fn permit_redirect(response: &mut Response, redirect: &Url) {
    let own = "form-action 'self'";
    let wider = format!("{own} {}", redirect.origin().ascii_serialization());
    let policy = POLICY.to_str().unwrap_or_default().replace(own, &wider);
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        response.headers_mut().insert(CONTENT_SECURITY_POLICY, policy);
    }
}
