//! Invitations: an admin makes a link, and the person who gets it becomes a member.

use axum::extract::RawQuery;
use axum::response::Response;
use http::{HeaderMap, Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Value, json};

use super::api::Problem;
use super::change::{Change, Review, submit};
use super::controls::{ROWS, button, end_of, form, required, secret, table, time, with_query};
use super::fields::FormFields;
use super::page::{Page, csrf, problem};
use super::people::role_select;
use super::see_other;
use super::session::{Posted, Session, UnauthenticatedForm, end, signed_in};
use super::value::text;
use super::visit::{Sent, Visit};
use crate::client::Path;

/// The page of a link, and the name of the secret in it.
pub(super) const PAGE: &str = "/invitation";
const SECRET: &str = "secret";
const TITLE: &str = "Invitation";

/// The invitations that nobody has accepted, and the form of a new one.
pub(super) async fn section(visit: &Visit) -> Result<Markup, Problem> {
    let open = visit.api().all(visit.list("invitations")).await?;
    let rows = html! {
        @for invitation in open.iter().take(ROWS) {
            tr {
                td { (text(invitation, "email")) }
                td { (text(invitation, "role")) }
                td { (time(text(invitation, "expires_at"))) }
                td {
                    @let path = visit.page_path(&format!("invitations/{}/revoke", text(invitation, "id")));
                    (button(&visit.session, &path, "Revoke"))
                }
            }
        }
    };
    let fields = html! { (required("E-mail address", "email", "email")) (role_select("member")) };
    Ok(html! {
        h2 { "Invitations" }
        @if !open.is_empty() { (table("Invitations", &["E-mail address", "Role", "The link ends", ""], &rows)) }
        @if open.len() > ROWS { p { "and " (open.len() - ROWS) " more" } }
        (form(&visit.session, &visit.page_path("invitations"), "Invite a person", &fields))
    })
}

/// Makes an invitation, and shows its link once.
pub(super) async fn create(sent: Sent) -> Response {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let mut body = json!({ "email": field("email"), "role": field("role") });
    if let end @ Value::String(_) = end_of(&sent.form) {
        body["role_expires_at"] = end;
    }
    let visit = &sent.visit;
    let made = visit
        .api()
        .send(Method::POST, visit.list("invitations"), Some(&body), None);
    let content = made.await.map(|answer| {
        html! {
            p { "Send this link to " (field("email")) ". It works once, and it is not shown again." }
            pre.secret tabindex="0" role="region" aria-label="Link" { code { (text(&answer.value, "link")) } }
            p { "It ends at " (time(text(&answer.value, "expires_at"))) ". " a href=(visit.page_path("people")) { "Back" } }
        }
    });
    visit.page(TITLE, content)
}

pub(super) async fn revoke(sent: Sent) -> Response {
    let visit = &sent.visit;
    let change = Change {
        method: Method::DELETE,
        path: visit.list("invitations").below(visit.parameter("id")),
        body: None,
        then: visit.page_path("people"),
    };
    let effect = html! { p { "The link of the invitation will not work any more." } };
    let review = async { Ok(Review::new("Revoke the invitation", effect)) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

/// The page of a link: a signed-in person joins with the own account, and everybody else makes one.
pub(super) async fn show(RawQuery(query): RawQuery, headers: HeaderMap) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    let of_link = query.get(SECRET).unwrap_or_default();
    if signed_in(&headers) {
        return see_other(&with_query(JOIN, &[(SECRET, of_link)]));
    }
    page(None, StatusCode::OK, &account_form(of_link, "", None))
}

/// The page of a link for a signed-in person.
pub(super) const JOIN: &str = "/invitation/join";

pub(super) async fn show_join(session: Result<Session, Response>, RawQuery(query): RawQuery) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    let of_link = query.get(SECRET).unwrap_or_default();
    match session {
        Ok(session) => page(Some(&session), StatusCode::OK, &join_form(&session, of_link, None)),
        // Without a session, or with one that has ended: the person may have no account.
        Err(refused) if refused.status() == StatusCode::SEE_OTHER => {
            let mut response = page(None, StatusCode::OK, &account_form(of_link, "", None));
            end(&mut response);
            response
        }
        Err(refused) => refused,
    }
}

/// Joins with the account of the session.
pub(super) async fn join(sent: Posted) -> Response {
    let of_link = sent.form.secret(SECRET).unwrap_or_default();
    let path = Path::new(["account", "invitations"]);
    let body = json!({ SECRET: of_link });
    match sent.session.api.send(Method::POST, path, Some(&body), None).await {
        Ok(answer) => see_other(&format!(
            "/organizations/{}/clusters",
            text(&answer.value, "organization_id")
        )),
        Err(refused) => {
            let form = join_form(&sent.session, of_link, Some(&refused));
            page(Some(&sent.session), refused.status, &form)
        }
    }
}

/// Creates the account of the invited person.
pub(super) async fn accept(sent: UnauthenticatedForm) -> Response {
    let of_link = sent.form.secret(SECRET).unwrap_or_default();
    let name = sent.form.get("name").unwrap_or_default();
    let password = sent.form.secret("password").unwrap_or_default();
    let body = json!({ SECRET: of_link, "name": name, "password": password });
    let path = Path::new(["invitations", "accept"]);
    match sent.api.send(Method::POST, path, Some(&body), None).await {
        Ok(answer) => page(
            None,
            StatusCode::OK,
            &html! {
                p { "You are a member now. " a href="/sign-in" { "Sign in" } " as " (text(&answer.value, "email")) "." }
            },
        ),
        Err(refused) => page(None, refused.status, &account_form(of_link, name, Some(&refused))),
    }
}

fn join_form(session: &Session, of_link: &str, refused: Option<&Problem>) -> Markup {
    html! {
        @if let Some(refused) = refused { (problem(refused)) }
        p { "You are signed in as " (session.account.email.as_str()) "." }
        form method="post" action=(JOIN) {
            (csrf(session))
            input type="hidden" name=(SECRET) value=(of_link);
            button type="submit" { "Join the organization" }
        }
    }
}

fn account_form(of_link: &str, name: &str, refused: Option<&Problem>) -> Markup {
    let back = with_query(JOIN, &[(SECRET, of_link)]);
    html! {
        @if let Some(refused) = refused { (problem(refused)) }
        p { a href=(with_query("/sign-in", &[("return_to", &back)])) { "Sign in if you have an account" } ", or make one:" }
        form.narrow method="post" action=(PAGE) {
            input type="hidden" name=(SECRET) value=(of_link);
            label { "Name " input name="name" autocomplete="name" required value=(name); }
            (secret("Password (12 characters or more)", "password", "new-password"))
            button type="submit" { "Become a member" }
        }
    }
}

fn page(session: Option<&Session>, status: StatusCode, content: &Markup) -> Response {
    let page = Page {
        title: TITLE,
        session,
        organization: None,
        status,
    };
    page.with(content)
}
