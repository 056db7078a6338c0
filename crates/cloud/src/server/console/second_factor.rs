//! The second factor: the page that asks for it after the password, and the keys and codes of "My account".
//!
//! The script asks the security key, and sends what it answers as the field `credential` of a form. A recovery code
//! needs no script.

use axum::extract::{Path as Segment, State};
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::Console;
use super::account::{HERE, change, page, path};
use super::api::Problem;
use super::change::{Review, submit};
use super::command_line::refusal;
use super::controls::{button, required, table, time};
use super::fields::FormFields;
use super::page::{Page, csrf, failed};
use super::session::{
    Posted, Session, UnauthenticatedForm, add_cookie, begin as begin_session, cookie, cookie_of, own_path,
};
use super::value::text;
use super::{see_other, sign_in as password_page};
use crate::client::Path;

/// The cookie of a sign-in between the password and the second factor.
const PENDING: &str = "__Host-second-factor";

/// Asks for the second factor, in the browser that sent the password.
pub(super) fn ask(step: &Value, return_to: &str) -> Response {
    let options = step.get("options").unwrap_or(&Value::Null);
    let hidden = html! { input type="hidden" name="return_to" value=(return_to); };
    let action = "/sign-in/second-factor";
    let content = if step.get("registers") == Some(&Value::Bool(true)) {
        html! {
            p { "Your organization requires a security key beside the password. Register one to sign in." }
            (ceremony("create", options, action, &html! { (hidden) (required("Name", "name", "text")) }))
        }
    } else {
        html! {
            @if !options.is_null() { (ceremony("get", options, action, &hidden)) }
            form.narrow method="post" action=(action) {
                (hidden)
                label { "Recovery code " input name="code" autocomplete="one-time-code" required; }
                button type="submit" { "Use the recovery code" }
            }
        }
    };
    let page = Page {
        title: "Second factor",
        session: None,
        organization: None,
        status: StatusCode::OK,
    };
    let mut response = page.with(&content);
    add_cookie(&mut response, &cookie_of(PENDING, text(step, "grant")));
    response
}

/// The form of a ceremony, which the script shows: `create` registers a key, and `get` uses one.
fn ceremony(kind: &str, options: &Value, action: &str, fields: &Markup) -> Markup {
    let label = if kind == "create" {
        "Register the security key"
    } else {
        "Use the security key"
    };
    html! {
        form.narrow method="post" action=(action) data-ceremony=(kind) data-options=(options.to_string()) hidden {
            (fields)
            input type="hidden" name="credential";
            button type="submit" { (label) }
            p role="status" {}
        }
        noscript { p { "A security key needs JavaScript." } }
    }
}

/// The answer of a browser to a ceremony; null if it is none.
fn credential(form: &FormFields) -> Value {
    let sent = form.get("credential").unwrap_or_default();
    serde_json::from_str(sent).unwrap_or_default()
}

/// Signs in with the second factor. The cookie goes, whatever comes of it.
pub(super) async fn sign_in(State(console): State<Console>, headers: HeaderMap, sent: UnauthenticatedForm) -> Response {
    let return_to = own_path(sent.form.get("return_to").unwrap_or_default());
    let mut body = json!({ "grant": cookie(&headers, PENDING).unwrap_or_default() });
    if let Some(code) = sent.form.filled("code") {
        body["code"] = Value::from(code);
    } else {
        body["credential"] = credential(&sent.form);
    }
    if let Some(name) = sent.form.get("name") {
        body["name"] = Value::from(name);
    }
    let path = Path::new(["login", "second_factor"]);
    let mut response = match sent.api.send(Method::POST, path, Some(&body), None).await {
        Ok(answer) => {
            let mut response = match answer.value.get("recovery_codes") {
                Some(codes) => Page {
                    title: "Recovery codes",
                    session: None,
                    organization: None,
                    status: StatusCode::OK,
                }
                .with(&codes_once(codes, return_to)),
                None => see_other(return_to),
            };
            begin_session(&mut response, text(&answer.value, "token"));
            response
        }
        Err(problem) => password_page::form(&console, return_to, "", Some(&problem)),
    };
    let mut pending = cookie_of(PENDING, "");
    pending.make_removal();
    add_cookie(&mut response, &pending);
    response
}

/// New recovery codes, in this response only.
fn codes_once(codes: &Value, then: &str) -> Markup {
    let codes = codes.as_array().into_iter().flatten().filter_map(Value::as_str);
    let codes: Vec<&str> = codes.collect();
    html! {
        p { "Keep these codes where you can read them without your security key. Each signs you in once in its place." }
        p { "They are not shown again." }
        pre.secret tabindex="0" role="region" aria-label="Recovery codes" { code { (codes.join("\n")) } }
        p { a href=(then) { "Continue" } }
    }
}

/// The security keys of the signed-in person.
pub(super) fn section(session: &Session, keys: &Value) -> Markup {
    let keys = keys.as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = html! {
        @for key in keys {
            tr {
                td { (text(key, "name")) }
                td { @if text(key, "last_used_at").is_empty() { "never" } @else { (time(text(key, "last_used_at"))) } }
                td { (button(session, &format!("/account/security-keys/{}/remove", text(key, "id")), "Remove")) }
            }
        }
    };
    html! {
        section {
            h2 { "Security keys" }
            p { "With a security key, your password alone does not sign in any more." }
            (table("Security keys", &["Name", "Last used", ""], &rows))
            (button(session, "/account/security-keys/new", "Register a security key"))
            @if !keys.is_empty() { (button(session, "/account/recovery-codes", "Create new recovery codes")) }
        }
    }
}

/// Shows the form that registers a security key.
pub(super) async fn begin(sent: Posted) -> Response {
    let session = &sent.session;
    let begun = session
        .api
        .send(Method::POST, path(["security-keys", "challenge"]), None, None);
    let (title, begun) = ("Register a security key", begun.await);
    let begun = match begun {
        Ok(answer) => answer.value,
        Err(refused) => return page(session, title, refused.status).with(&refusal(&refused, HERE)),
    };
    let fields = html! {
        (csrf(session))
        input type="hidden" name="challenge" value=(text(&begun, "challenge"));
        (required("Name", "name", "text"))
    };
    let options = begun.get("options").unwrap_or(&Value::Null);
    page(session, title, StatusCode::OK).with(&ceremony("create", options, "/account/security-keys", &fields))
}

/// Registers a security key. With the first one, shows recovery codes.
pub(super) async fn register(sent: Posted) -> Response {
    let session = &sent.session;
    let field = |name| sent.form.get(name).unwrap_or_default();
    let body = json!({
        "name": field("name"),
        "challenge": field("challenge"),
        "credential": credential(&sent.form),
    });
    let answer = session
        .api
        .send(Method::POST, path(["security-keys"]), Some(&body), None);
    match answer.await {
        Ok(answer) => match answer.value.get("recovery_codes") {
            Some(codes) => page(session, "Recovery codes", StatusCode::OK).with(&codes_once(codes, HERE)),
            None => see_other(HERE),
        },
        Err(refused) => page(session, "Register a security key", refused.status).with(&refusal(&refused, HERE)),
    }
}

pub(super) async fn remove(Segment(id): Segment<String>, sent: Posted) -> Response {
    let change = change(Method::DELETE, path(["security-keys", &id]), None);
    let review = async {
        let keys = sent.session.api.get(path(["security-keys"])).await?.value;
        let keys = keys.as_array().map(Vec::as_slice).unwrap_or_default();
        let key = keys.iter().find(|key| text(key, "id") == id);
        let effect = html! {
            p { "You cannot sign in with this key any more: " strong { (key.map_or("", |key| text(key, "name"))) } }
            @if keys.len() == 1 {
                p { "It is your last one: your recovery codes go too, and your password alone signs in." }
            }
        };
        Ok::<_, Problem>(Review::new("Remove the security key", effect))
    };
    submit((&sent.session, None), &sent.form, change, review).await
}

/// Replaces the recovery codes, and shows the new ones.
pub(super) async fn renew_codes(sent: Posted) -> Response {
    let session = &sent.session;
    match session
        .api
        .send(Method::POST, path(["recovery-codes"]), None, None)
        .await
    {
        Ok(answer) => {
            let codes = answer.value.get("recovery_codes").unwrap_or(&Value::Null);
            page(session, "Recovery codes", StatusCode::OK).with(&codes_once(codes, HERE))
        }
        Err(refused) => failed(Some(session), &refused),
    }
}
