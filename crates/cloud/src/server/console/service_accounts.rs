//! The service accounts of an organization and their tokens, for admins. A token is in one page alone: the response to
//! the form that creates it.

use axum::response::Response;
use http::{Method, StatusCode};
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::api::Problem;
use super::change::{Change, Review, submit};
use super::controls::{button, end_input, end_of, ends, facts, form, input, required, select, table, time};
use super::fields::FormFields;
use super::page::{failed, problem};
use super::parts::breadcrumbs;
use super::value::{list, text};
use super::visit::{Sent, Visit};
use crate::client::Path;
use crate::models::Kind;

const LIST: &str = "service-accounts";
const DAY: u32 = 24 * 60 * 60;
/// The roles that a service account may have.
const ROLES: [(&str, &str); 3] = [("read_only", "read_only"), ("member", "member"), ("admin", "admin")];

/// The service account of a page in the API.
fn path(visit: &Visit) -> Path {
    visit.list(LIST).below(visit.parameter("id"))
}

/// A page of the service account.
fn here(visit: &Visit, rest: &str) -> String {
    visit.page_path(&format!("{LIST}/{}{rest}", visit.parameter("id")))
}

/// Refuses the pages to others, who can read the names of service accounts in the API, and none of their tokens.
fn check_admin(visit: &Visit) -> Result<(), Problem> {
    if visit.is_admin() {
        return Ok(());
    }
    Err(Problem::forbidden("only admins see service accounts: ask an owner"))
}

pub(super) async fn show_all(visit: Visit) -> Response {
    let content = all(&visit).await;
    visit.page("Service accounts", content)
}

async fn all(visit: &Visit) -> Result<Markup, Problem> {
    check_admin(visit)?;
    let accounts = visit.api().all(visit.list(LIST)).await?;
    let rows = html! {
        @for account in &accounts {
            tr {
                td { (visit.link(LIST, account)) }
                td { (text(account, "role")) }
                td { (text(account, "description")) }
                td { (ends(account, visit.session.now)) }
            }
        }
    };
    let fields = html! {
        (required("Name", "name", "text"))
        (input("Description", "description", ""))
        (select("Role", "role", ROLES, "read_only"))
        (end_input(""))
    };
    Ok(html! {
        (breadcrumbs(&[(&*visit.page_path("people"), "People and teams")]))
        p { "Programs of the organization, which are no users: they have tokens, and no password or SSH access." }
        (table("Service accounts", &["Name", "Role", "Description", "Ends"], &rows))
        (form(&visit.session, &visit.page_path(LIST), "Create a service account", &fields))
    })
}

pub(super) async fn create(sent: Sent) -> Response {
    let (visit, field) = (&sent.visit, |name| sent.form.get(name).unwrap_or_default());
    let mut body = json!({ "name": field("name"), "description": field("description"), "role": field("role") });
    body["expires_at"] = end_of(&sent.form);
    let effect = html! {
        p { "A program without a token so far. Its tokens do what the role permits, and give nobody access:" }
        (described(visit, &body))
    };
    let change = Change {
        method: Method::POST,
        path: visit.list(LIST),
        body: Some(body),
        then: visit.page_path(LIST),
    };
    let review = async { Ok(Review::new("Create the service account", effect)) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

/// A service account, or one that does not exist yet.
fn described(visit: &Visit, account: &Value) -> Markup {
    let mut described = vec![
        ("Name", html! { (text(account, "name")) }),
        ("Role", html! { (text(account, "role")) }),
        ("Description", html! { (text(account, "description")) }),
        ("Ends", ends(account, visit.session.now)),
    ];
    if !text(account, "id").is_empty() {
        described.push(("Created", time(text(account, "created_at"))));
        described.push(("ID", html! { code { (text(account, "id")) } }));
    }
    facts(&described)
}

pub(super) async fn show(visit: Visit) -> Response {
    match account(&visit).await {
        Ok((name, content)) => visit.page(&name, Ok(content)),
        Err(problem) => failed(Some(&visit.session), &problem),
    }
}

async fn account(visit: &Visit) -> Result<(String, Markup), Problem> {
    check_admin(visit)?;
    let account = visit.api().get(path(visit)).await?.value;
    let tokens = visit.api().all(path(visit).below("tokens")).await?;
    let clusters = clusters(visit).await?;
    let session = &visit.session;
    let content = html! {
        (breadcrumbs(&[(&*visit.page_path(LIST), "Service accounts")]))
        (described(visit, &account))
        h2 { "Tokens" }
        (token_table(visit, &tokens, &clusters))
        (form(session, &here(visit, "/tokens"), "Create a token", &token_fields(&clusters)))
        h2 { "Change" }
        (form(session, &here(visit, "/end"), "Set the end", &end_input(text(&account, "expires_at"))))
        (button(session, &here(visit, "/delete"), "Delete the service account"))
    };
    Ok((text(&account, "name").to_owned(), content))
}

async fn clusters(visit: &Visit) -> Result<Vec<Value>, Problem> {
    visit.api().all(visit.list("clusters")).await
}

fn token_table(visit: &Visit, tokens: &[Value], clusters: &[Value]) -> Markup {
    let rows = html! {
        @for token in tokens {
            @let revoke = here(visit, &format!("/tokens/{}/revoke", text(token, "id")));
            tr {
                td title=(text(token, "id")) { (text(token, "name")) }
                td { (scope(token, clusters)) }
                td { (time(text(token, "created_at"))) }
                td { (time(text(token, "expires_at"))) }
                td { (button(&visit.session, &revoke, "Revoke")) }
            }
        }
    };
    table("Tokens", &["Name", "Limited to", "Created", "Ends", ""], &rows)
}

/// The scope of a token, with the names of its clusters.
fn scope(token: &Value, clusters: &[Value]) -> Markup {
    let Some(scope) = token.get("scope").filter(|scope| scope.is_object()) else {
        return html! { "what the role permits" };
    };
    let words = |field| list(scope, field).filter_map(Value::as_str);
    let name = |id: &str| {
        let found = clusters.iter().find(|cluster| text(cluster, "id") == id);
        found.map_or(id, |cluster| text(cluster, "name")).to_owned()
    };
    let kinds: Vec<&str> = words("kinds").collect();
    let clusters: Vec<String> = words("clusters").map(name).collect();
    let verbs: Vec<&str> = words("verbs").collect();
    html! {
        ul.rules {
            @if !kinds.is_empty() { li { "kinds: " (kinds.join(", ")) } }
            @if !clusters.is_empty() { li { "clusters: " (clusters.join(", ")) } }
            @if !verbs.is_empty() { li { "verbs: " (verbs.join(", ")) } }
        }
    }
}

/// The fields of a token. Without a limit, it has all permissions of its service account.
fn token_fields(clusters: &[Value]) -> Markup {
    html! {
        (required("Name", "name", "text"))
        label { "Valid for days " input type="number" name="days" min="1" max="365" value="30" required; }
        label {
            "Only these kinds "
            span.hint { "None: all. Credentials of registries need the kind registries." }
            select name="kinds" multiple {
                @for kind in Kind::resources().map(Kind::word) { option value=(kind) { (kind) } }
            }
        }
        label {
            "Only these clusters "
            span.hint { "None: all, and the organization." }
            select name="clusters" multiple {
                @for cluster in clusters { option value=(text(cluster, "id")) { (text(cluster, "name")) } }
            }
        }
        label.check { input type="checkbox" name="read_only" value="yes"; "Only reading" }
        p { "A token is shown once." }
    }
}

/// The token that a form describes.
fn token_spec(form: &FormFields) -> Value {
    let days: u32 = form.get("days").and_then(|days| days.parse().ok()).unwrap_or_default();
    let mut scope = Map::new();
    for field in ["kinds", "clusters"] {
        let chosen: Vec<&str> = form.all(field).filter(|value| !value.is_empty()).collect();
        if !chosen.is_empty() {
            scope.insert(field.to_owned(), json!(chosen));
        }
    }
    if form.get("read_only").is_some() {
        scope.insert("verbs".to_owned(), json!(["read"]));
    }
    let mut spec = json!({
        "name": form.get("name").unwrap_or_default(),
        "expires_in_seconds": days.saturating_mul(DAY),
    });
    if !scope.is_empty() {
        spec["scope"] = Value::Object(scope);
    }
    spec
}

/// Creates a token, whose form says what it permits, and shows it in this response only.
pub(super) async fn create_token(sent: Sent) -> Response {
    let visit = &sent.visit;
    let (list, body) = (path(visit).below("tokens"), token_spec(&sent.form));
    let made = visit.api().send(Method::POST, list, Some(&body), None).await;
    let back = html! { p { a href=(here(visit, "")) { "Back to the service account" } } };
    match made {
        Ok(answer) => visit.page_with(
            StatusCode::CREATED,
            "Token created",
            &html! {
                p { "Copy the token now. It is not shown again." }
                pre.secret tabindex="0" role="region" aria-label="Token" { code { (text(&answer.value, "token")) } }
                p { "It ends at " (time(text(&answer.value, "expires_at"))) "." }
                (back)
            },
        ),
        Err(refused) => visit.page_with(
            refused.status,
            "Create a token",
            &html! {
                (problem(&refused))
                @if refused.status == StatusCode::FORBIDDEN && visit.is_admin() {
                    p { "Sign out, sign in again, and create the token then." }
                }
                (back)
            },
        ),
    }
}

pub(super) async fn revoke_token(sent: Sent) -> Response {
    let (visit, id) = (&sent.visit, sent.visit.parameter("token"));
    let change = Change {
        method: Method::DELETE,
        path: path(visit).below("tokens").below(id),
        body: None,
        then: here(visit, ""),
    };
    let review = async {
        let tokens = visit.api().all(path(visit).below("tokens")).await?;
        let clusters = clusters(visit).await?;
        let effect = html! {
            @if let Some(token) = tokens.iter().find(|token| text(token, "id") == id) {
                p { "The token " strong { (text(token, "name")) } " becomes invalid, and what uses it is refused:" }
                (scope(token, &clusters))
            }
        };
        Ok::<_, Problem>(Review::new("Revoke the token", effect))
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

pub(super) async fn set_end(sent: Sent) -> Response {
    let body = json!({ "expires_at": end_of(&sent.form) });
    let now = sent.visit.session.now;
    let effect = html! { p { "The new end, from which on no token of it is accepted: " (ends(&body, now)) } };
    change(&sent, "Set the end", (Method::PATCH, Some(body)), &effect).await
}

pub(super) async fn delete(sent: Sent) -> Response {
    let effect =
        html! { p { "The service account is deleted with its tokens, and what uses them is refused at once:" } };
    change(&sent, "Delete the service account", (Method::DELETE, None), &effect).await
}

/// Reviews or makes a change of the service account of the page.
async fn change(sent: &Sent, title: &str, (method, body): (Method, Option<Value>), effect: &Markup) -> Response {
    let visit = &sent.visit;
    let then = if method == Method::DELETE {
        visit.page_path(LIST)
    } else {
        here(visit, "")
    };
    let change = Change {
        method,
        path: path(visit),
        body,
        then,
    };
    let review = async {
        let answer = visit.api().get(path(visit)).await?;
        let effect = html! { (effect) (described(visit, &answer.value)) };
        Ok::<_, Problem>(Review::new(title, effect).of_version(answer.etag))
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_limits_a_token_to_what_is_chosen() {
        let spec = |form: &str| token_spec(&FormFields::parse(form.as_bytes()));
        assert_eq!(
            spec("name=ci&days=2"),
            json!({"name": "ci", "expires_in_seconds": 172_800})
        );
        let limited = spec("name=ci&days=1&kinds=labels&kinds=nodes&clusters=a&read_only=yes")["scope"].clone();
        assert_eq!(
            limited,
            json!({"kinds": ["labels", "nodes"], "clusters": ["a"], "verbs": ["read"]})
        );
    }
}
