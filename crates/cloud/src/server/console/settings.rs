//! The settings of an organization: its name, and how people sign in.

use axum::response::Response;
use http::Method;
use maud::html;
use serde_json::{Value, json};

use super::api::{Answer, Problem};
use super::change::{Change, Review, submit};
use super::controls::form;
use super::directory::organization;
use super::parts::changed;
use super::value::text;
use super::visit::{Sent, Visit};
use crate::models::OrgRole;

const TITLE: &str = "Settings";

/// The settings of sign-in: the field, its label, and what it ends.
const SWITCHES: [(&str, &str, &str); 2] = [
    (
        "second_factor_required",
        "People whose home is the organization need more than a password",
        "Their logins of a password alone end at once, yours too: you sign in again, and register a security key.",
    ),
    (
        "passwords_disabled",
        "People whose home is the organization, and who have linked a provider, have no password",
        "They sign in at the provider alone. Logins that exist stay.",
    ),
];

async fn read(visit: &Visit) -> Result<Answer, Problem> {
    if !visit.may(OrgRole::Owner) {
        return Err(Problem::forbidden("only an owner of the organization can do this"));
    }
    visit.api().get(organization(&visit.place.id)).await
}

fn is_on(settings: &Value, field: &str) -> bool {
    settings.get(field) == Some(&Value::Bool(true))
}

pub(super) async fn show(visit: Visit) -> Response {
    let content = read(&visit).await.map(|answer| {
        let settings = answer.value;
        let fields = html! {
            label { "Name " input name="name" value=(text(&settings, "name")) required; }
            @for (field, label, _) in SWITCHES {
                label.check { input type="checkbox" name=(field) value="yes" checked[is_on(&settings, field)]; (label) }
            }
        };
        form(&visit.session, &visit.page_path("settings"), "Show the effect", &fields)
    });
    visit.page(TITLE, content)
}

pub(super) async fn change(sent: Sent) -> Response {
    let visit = &sent.visit;
    let mut body = json!({ "name": sent.form.get("name").unwrap_or_default() });
    for (field, ..) in SWITCHES {
        body[field] = sent.form.get(field).is_some().into();
    }
    let wanted = body.clone();
    let review = async {
        let before = read(visit).await?;
        let effect = html! {
            p { "The name: " (changed(text(&before.value, "name"), text(&wanted, "name"))) }
            @for (field, label, ends) in SWITCHES {
                @let (was, is) = (is_on(&before.value, field), is_on(&wanted, field));
                p { (label) ": " @if was == is { (word(is)) } @else { (changed(word(was), word(is))) } }
                @if is && !was { p { (ends) } }
            }
        };
        Ok::<_, Problem>(Review::new("Change the settings", effect).of_version(before.etag))
    };
    let change = Change {
        method: Method::PATCH,
        path: organization(&visit.place.id),
        body: Some(body),
        then: visit.page_path("settings"),
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

fn word(is_on: bool) -> &'static str {
    if is_on { "yes" } else { "no" }
}
