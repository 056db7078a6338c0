//! The account of the signed-in person: name, password, SSH keys, and tokens for programs.

use axum::extract::{Path as Segment, RawQuery};
use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::api::Problem;
use super::change::{Change, Review, SECRET, submit};
use super::controls::{button, end_input, end_of, ends, facts, form, input, required, secret, table, time};
use super::fields::FormFields;
use super::followed;
use super::page::{Page, failed, problem};
use super::parts::changed;
use super::providers::LINKED;
use super::second_factor;
use super::session::{Posted, Session};
use super::value::text;
use crate::client::Path;

pub(super) const HERE: &str = "/account";
/// The name of the token of a login.
const LOGIN: &str = "login";
const DAY: u32 = 24 * 60 * 60;

/// A path of the account in the API.
pub(super) fn path<const N: usize>(segments: [&str; N]) -> Path {
    segments.into_iter().fold(Path::new(["account"]), Path::below)
}

pub(super) fn page<'a>(session: &'a Session, title: &'a str, status: StatusCode) -> Page<'a> {
    Page {
        title,
        session: Some(session),
        organization: None,
        status,
    }
}

pub(super) async fn show(session: Session, RawQuery(query): RawQuery) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    match content(&session).await {
        Ok(content) => {
            let done = followed::after_account(&session, &query).await;
            page(&session, "My account", StatusCode::OK).with(&html! { (done) (content) })
        }
        Err(problem) => failed(Some(&session), &problem),
    }
}

async fn content(session: &Session) -> Result<Markup, Problem> {
    let account = session.api.get(path([])).await?.value;
    let keys = session.api.all(path(["ssh_keys"])).await?;
    let security_keys = session.api.get(path(["security-keys"])).await?.value;
    let tokens = session.api.get(path(["tokens"])).await?.value;
    let end = text(&account, "expires_at");
    Ok(html! {
        (facts(&[
            ("E-mail address", html! { (text(&account, "email")) }),
            ("Access ends", html! { @if end.is_empty() { "no end" } @else { (time(end)) } }),
            ("ID", html! { code { (text(&account, "id")) } }),
        ]))
        (profile(session, &account))
        (password(session))
        (second_factor::section(session, &security_keys))
        (ssh_keys(session, &keys))
        (token_list(session, &tokens))
    })
}

fn profile(session: &Session, account: &Value) -> Markup {
    let fields = html! {
        (input("Name", "name", text(account, "name")))
        (input("E-mail address", "email", text(account, "email")))
        (input("Telephone number", "phone", text(account, "phone")))
    };
    html! { section { h2 { "Profile" } (form(session, HERE, "Change the profile", &fields)) } }
}

fn password(session: &Session) -> Markup {
    html! {
        section {
            h2 { "Signing in" }
            (button(session, "/account/password", "Change the password"))
            p { a href=(LINKED) { "Sign-in providers" } }
        }
    }
}

fn ssh_keys(session: &Session, keys: &[Value]) -> Markup {
    let now = session.now;
    let rows = html! {
        @for key in keys {
            tr {
                td { (text(key, "name")) }
                td { code { (text(key, "fingerprint")) } }
                td { (ends(key, now)) }
                td { (button(session, &format!("/account/keys/{}/delete", text(key, "id")), "Delete")) }
            }
        }
    };
    let fields = html! {
        (required("Name", "name", "text"))
        label { "Public key " textarea name="key" required {} }
        (end_input(""))
    };
    html! {
        section {
            h2 { "SSH keys" }
            (table("SSH keys", &["Name", "Fingerprint", "Ends", ""], &rows))
            (form(session, "/account/keys", "Add a key", &fields))
        }
    }
}

fn token_list(session: &Session, tokens: &Value) -> Markup {
    let tokens = tokens.as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = html! {
        @for token in tokens {
            tr {
                td {
                    (text(token, "name"))
                    @if text(token, "id") == session.token { " (this session)" }
                    @else if text(token, "name") == LOGIN { " (a session)" }
                }
                td { (time(text(token, "created_at"))) }
                td { (time(text(token, "expires_at"))) }
                td { (button(session, &format!("/account/tokens/{}/revoke", text(token, "id")), "Revoke")) }
            }
        }
    };
    let fields = html! {
        (required("Name", "name", "text"))
        label { "Valid for days " input type="number" name="days" min="1" max="365" value="30" required; }
        p { "A token is shown once. It has all of your permissions." }
    };
    html! {
        section {
            h2 { "Tokens and sessions" }
            (table("Tokens and sessions", &["Name", "Created", "Ends", ""], &rows))
            (form(session, "/account/tokens", "Create a token", &fields))
        }
    }
}

/// A change of the account, after which its page is shown.
pub(super) fn change(method: Method, path: Path, body: Option<Value>) -> Change {
    Change {
        method,
        path,
        body,
        then: HERE.to_owned(),
    }
}

pub(super) async fn change_profile(sent: Posted) -> Response {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let body = json!({ "name": field("name"), "email": field("email"), "phone": sent.form.filled("phone") });
    let review = async {
        let answer = sent.session.api.get(path([])).await?;
        let effect = html! {
            @for field in ["name", "email", "phone"] {
                @if text(&answer.value, field) != text(&body, field) {
                    p { (field) ": " (changed(text(&answer.value, field), text(&body, field))) }
                }
            }
        };
        Ok::<_, Problem>(Review::new("Change the profile", effect).of_version(answer.etag))
    };
    let change = change(Method::PATCH, path([]), Some(body.clone()));
    submit((&sent.session, None), &sent.form, change, review).await
}

pub(super) async fn change_password(sent: Posted) -> Response {
    let name = |field| format!("{SECRET}{field}");
    let [old, new] = ["old_password", "new_password"].map(name);
    let effect = html! { p { "All other logins of yours end. This session and the tokens of programs stay." } };
    let asks = html! {
        (secret("Current password", &old, "current-password"))
        (secret("New password (12 to 256 characters)", &new, "new-password"))
    };
    let field = |name: &str| sent.form.secret(name).unwrap_or_default();
    let body = json!({ "old_password": field(&old), "new_password": field(&new) });
    let change = change(Method::PUT, path(["password"]), Some(body));
    let review = async { Ok(Review::new("Change the password", effect).asking(asks)) };
    submit((&sent.session, None), &sent.form, change, review).await
}

pub(super) async fn add_key(sent: Posted) -> Response {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let mut body = json!({ "name": field("name"), "key": field("key") });
    body["expires_at"] = end_of(&sent.form);
    let effect = html! {
        p {
            "With this key, you can log in on the nodes of the clusters of your organizations, unless your role there \
             is read_only."
        }
        (facts(&[
            ("Name", html! { (field("name")) }),
            ("Public key", html! { code { (field("key")) } }),
            ("Ends", ends(&body, sent.session.now)),
        ]))
    };
    let change = change(Method::POST, path(["ssh_keys"]), Some(body));
    let review = async { Ok(Review::new("Add the key", effect)) };
    submit((&sent.session, None), &sent.form, change, review).await
}

pub(super) async fn delete_key(Segment(id): Segment<String>, sent: Posted) -> Response {
    let change = change(Method::DELETE, path(["ssh_keys", &id]), None);
    let review = async {
        let keys = sent.session.api.all(path(["ssh_keys"])).await?;
        let key = keys
            .iter()
            .find(|key| text(key, "id") == id)
            .cloned()
            .unwrap_or_default();
        let effect = html! {
            p { "You cannot log in on nodes with this key any more:" }
            p { (text(&key, "name")) " " code { (text(&key, "fingerprint")) } }
        };
        Ok::<_, Problem>(Review::new("Delete the key", effect))
    };
    submit((&sent.session, None), &sent.form, change, review).await
}

pub(super) async fn revoke_token(Segment(id): Segment<String>, sent: Posted) -> Response {
    let change = change(Method::DELETE, path(["tokens", &id]), None);
    let review = async {
        let tokens = sent.session.api.get(path(["tokens"])).await?.value;
        let token = tokens
            .as_array()
            .into_iter()
            .flatten()
            .find(|token| text(token, "id") == id);
        let name = token.map_or("", |token| text(token, "name"));
        let effect = html! { p { "The token " strong { (name) } " becomes invalid, and what uses it is refused." } };
        Ok::<_, Problem>(Review::new("Revoke the token", effect))
    };
    submit((&sent.session, None), &sent.form, change, review).await
}

/// Creates a token, whose form says what it permits, and shows it in this response only.
pub(super) async fn create_token(sent: Posted) -> Response {
    let days = sent
        .form
        .get("days")
        .and_then(|days| days.parse::<u32>().ok())
        .unwrap_or_default();
    let seconds = days.saturating_mul(DAY);
    let body = json!({ "name": sent.form.get("name").unwrap_or_default(), "expires_in_seconds": seconds });
    let made = sent
        .session
        .api
        .send(Method::POST, path(["tokens"]), Some(&body), None)
        .await;
    match made {
        Ok(answer) => page(&sent.session, "Token created", StatusCode::CREATED).with(&html! {
            p { "Copy the token now. It is not shown again." }
            pre.secret tabindex="0" role="region" aria-label="Token" { code { (text(&answer.value, "token")) } }
            p { "It ends at " (time(text(&answer.value, "expires_at"))) ". " a href=(HERE) { "Back to the account" } }
        }),
        Err(refused) => page(&sent.session, "Create a token", refused.status).with(&html! {
            (problem(&refused))
            @if refused.status == StatusCode::FORBIDDEN { p { "Sign out, sign in again, and create the token then." } }
            p { a href=(HERE) { "Back to the account" } }
        }),
    }
}
