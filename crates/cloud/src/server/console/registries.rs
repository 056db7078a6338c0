//! The registries of an organization. Their credentials are only written: no page has them, and an empty field leaves
//! them as they are.

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::api::Problem;
use super::change::{Change, Review, SECRET, submit};
use super::controls::{ROWS, button, facts, form, input, next, secret, select, table, time};
use super::fields::FormFields;
use super::parts::breadcrumbs;
use super::value::text;
use super::visit::{Sent, Visit};

/// The providers, as the API and as people name them.
const PROVIDERS: [(&str, &str); 6] = [
    ("amazon_ec2_registry", "Amazon ECR"),
    ("google_registry", "Google"),
    ("azure", "Azure"),
    ("dockerhub", "Docker Hub"),
    ("quay", "Quay"),
    ("private", "Other"),
];

pub(super) async fn show_all(visit: Visit) -> Response {
    let content = visit.part(visit.list("registries"), ROWS).await.map(|answer| {
        let rows = html! {
            @for registry in answer.items() {
                tr {
                    td {
                        a href=(visit.page_path(&format!("registries/{}", text(registry, "id")))) {
                            (text(registry, "serveraddress"))
                        }
                    }
                    td { (provider(registry)) }
                    td { (text(registry, "description")) }
                }
            }
        };
        html! {
            p { "Clusters pull images from these registries, with a pull secret in each namespace." }
            @if visit.is_admin() { p { a href=(visit.page_path("registries/new")) { "Create a registry" } } }
            (table("Registries", &["Address", "Provider", "Description"], &rows))
            (next(&visit.page_path("registries"), answer.after.as_deref()))
        }
    });
    visit.page("Registries", content)
}

fn provider(registry: &Value) -> &str {
    let word = text(registry, "provider");
    PROVIDERS
        .into_iter()
        .find(|(known, _)| *known == word)
        .map_or(word, |(_, name)| name)
}

fn fields(registry: &Value) -> Markup {
    html! {
        (input("Address", "serveraddress", text(registry, "serveraddress")))
        (select("Provider", "provider", PROVIDERS, text(registry, "provider")))
        (input("Description", "description", text(registry, "description")))
        (input("E-mail address", "email", text(registry, "email")))
    }
}

pub(super) async fn create_form(visit: Visit) -> Response {
    let content = form(
        &visit.session,
        &visit.page_path("registries"),
        "Show the effect",
        &fields(&Value::Null),
    );
    visit.admin_page("Create a registry", Ok(content))
}

pub(super) async fn show(visit: Visit) -> Response {
    let here = visit.page_path(&format!("registries/{}", visit.parameter("id")));
    let path = visit.list("registries").below(visit.parameter("id"));
    let content = visit.api().get(path).await.map(|answer| {
        html! {
            (breadcrumbs(&[(&*visit.page_path("registries"), "Registries")]))
            (described(&answer.value))
            @if visit.is_admin() {
                h2 { "Change" }
                (form(&visit.session, &here, "Show the effect", &fields(&answer.value)))
                (button(&visit.session, &format!("{here}/delete"), "Delete the registry"))
            }
        }
    });
    visit.page("Registry", content)
}

/// The registry without its credentials.
fn described(registry: &Value) -> Markup {
    let mut described = vec![
        ("Address", html! { (text(registry, "serveraddress")) }),
        ("Provider", html! { (provider(registry)) }),
        ("Description", html! { (text(registry, "description")) }),
        ("E-mail address", html! { (text(registry, "email")) }),
    ];
    if !text(registry, "id").is_empty() {
        described.push(("Created", time(text(registry, "created_at"))));
        described.push(("ID", html! { code { (text(registry, "id")) } }));
    }
    facts(&described)
}

/// The settings in a form, with the credentials that are filled in.
fn spec(form: &FormFields) -> Value {
    let field = |name| form.get(name).unwrap_or_default();
    let mut spec = json!({
        "serveraddress": field("serveraddress"),
        "provider": field("provider"),
        "description": field("description"),
        "email": form.filled("email"),
    });
    let secrets = form.pairs().filter_map(|(name, _)| {
        let value = form.secret(name)?;
        Some((name.strip_prefix(SECRET)?.to_owned(), Value::from(value)))
    });
    let mut credentials: Map<String, Value> = secrets.collect();
    if let (Some(Value::String(name)), Some(value)) = (credentials.remove("name"), credentials.remove("value")) {
        credentials.insert(name, value);
    }
    if !credentials.is_empty() {
        spec["credentials"] = Value::Object(credentials);
    }
    spec
}

fn secrets() -> Markup {
    let name = |field| format!("{SECRET}{field}");
    html! {
        fieldset {
            legend { "Credentials" }
            p { "They are never shown. An empty field leaves them as they are." }
            (secret("User name", &name("username"), "off"))
            (secret("Password", &name("password"), "new-password"))
            p { "Of Amazon and Google, one credential by its name:" }
            (secret("Name of the credential", &name("name"), "off"))
            (secret("Credential", &name("value"), "new-password"))
        }
    }
}

pub(super) async fn create(sent: Sent) -> Response {
    let (visit, body) = (&sent.visit, spec(&sent.form));
    let effect = html! {
        p { "All clusters of the organization get a pull secret for this registry." }
        (described(&body))
    };
    let (path, then) = (visit.list("registries"), visit.page_path("registries"));
    let change = Change {
        method: Method::POST,
        path,
        body: Some(body),
        then,
    };
    let review = async { Ok(Review::new("Create the registry", effect).asking(secrets())) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

pub(super) async fn update(sent: Sent) -> Response {
    let body = spec(&sent.form);
    change(&sent, "Change the registry", Some(body)).await
}

pub(super) async fn delete(sent: Sent) -> Response {
    change(&sent, "Delete the registry", None).await
}

/// Reviews or makes a change, or without a body the deletion, of the registry of the page.
async fn change(sent: &Sent, title: &str, body: Option<Value>) -> Response {
    let visit = &sent.visit;
    let path = visit.list("registries").below(visit.parameter("id"));
    let review = async {
        let answer = visit.api().get(path.clone()).await?;
        let after = body.as_ref().map(described);
        let effect = html! {
            @if after.is_none() { p { "Clusters delete the pull secrets of this registry." } }
            h2 { "Before" }
            (described(&answer.value))
            @if let Some(after) = &after { h2 { "After" } (after) }
        };
        let asks = if body.is_some() { secrets() } else { Markup::default() };
        Ok::<_, Problem>(Review::new(title, effect).asking(asks).of_version(answer.etag))
    };
    let method = if body.is_some() { Method::PATCH } else { Method::DELETE };
    let (path, then) = (path.clone(), visit.page_path("registries"));
    let change = Change {
        method,
        path,
        body: body.clone(),
        then,
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}
