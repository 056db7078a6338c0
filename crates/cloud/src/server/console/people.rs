//! The people of an organization: their roles, keys, teams and role bindings, and the end of their access.

use std::collections::HashMap;

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::access::bindings_table;
use super::api::Problem;
use super::change::{Change, Review, SECRET, submit};
use super::cluster::number;
use super::controls::{
    ROWS, button, end, end_input, end_of, ends, facts, form, input, required, secret, select, table, time, with_query,
};
use super::directory::{Bindings, Directory};
use super::invitations;
use super::lookup::named_ids;
use super::page::failed;
use super::parts::{breadcrumbs, changed};
use super::teams;
use super::value::{list, text};
use super::visit::{Sent, Visit};
use crate::client::Path;
use crate::models::OrgRole;
use crate::server::store::BindingFilter;

pub(super) async fn show_all(visit: Visit) -> Response {
    let content = everybody(&visit).await;
    visit.page("People and teams", content)
}

async fn everybody(visit: &Visit) -> Result<Markup, Problem> {
    let wanted = visit.query.get("person").unwrap_or_default();
    let after = visit.query.get("after").and_then(|after| after.parse().ok());
    let (users, next_user) = visit.people(wanted, after.unwrap_or(i64::MIN)).await?;
    let ids: Vec<&str> = users.iter().map(|user| text(user, "id")).collect();
    let of_people = visit.teams_of(&ids).await?;
    let list = visit.list("teams").query("limit", ROWS);
    let teams = visit.api().get(match visit.query.filled("team") {
        Some(after) => list.query("after", after),
        None => list,
    });
    let teams = teams.await?;
    let invitations = if visit.is_admin() {
        invitations::section(visit).await?
    } else {
        Markup::default()
    };
    let here = visit.page_path("people");
    let next_user = next_user.map(|after| with_query(&here, &[("person", wanted), ("after", &*after.to_string())]));
    Ok(html! {
        @if visit.is_admin() {
            p {
                a href=(visit.page_path("people/new")) { "Create a person" }
                " · " a href=(visit.page_path("service-accounts")) { "Service accounts" }
                @if visit.may(OrgRole::Owner) { " · " a href=(visit.page_path("settings")) { "Settings" } }
            }
        }
        form.filter method="get" {
            (input("Name or e-mail address", "person", wanted))
            button type="submit" { "Search" }
        }
        (people_table(visit, &users, &of_people))
        @if let Some(next) = &next_user { p { a rel="next" href=(next) { "Next" } } }
        h2 { "Teams" }
        (teams::teams_table(visit, teams.items()))
        @if let Some(after) = &teams.after {
            p { a rel="next" href=(with_query(&here, &[("team", after.as_str())])) { "More teams" } }
        }
        (invitations)
    })
}

fn people_table(visit: &Visit, users: &[Value], of_people: &HashMap<String, Vec<Value>>) -> Markup {
    let rows = html! {
        @for user in users {
            tr {
                td { (visit.link("people", user)) }
                td { (text(user, "email")) }
                td { (text(user, "role")) }
                td {
                    @for team in of_people.get(text(user, "id")).into_iter().flatten() {
                        (visit.link("teams", team)) " "
                    }
                }
                td { (number(user, "keys")) }
                td { (ends(user, visit.session.now)) }
                td { (end(text(user, "role_expires_at"), visit.session.now)) }
            }
        }
    };
    table(
        "People",
        &[
            "Name",
            "E-mail address",
            "Role",
            "Teams",
            "SSH keys",
            "Access ends",
            "Membership ends",
        ],
        &rows,
    )
}

pub(super) async fn create_form(visit: Visit) -> Response {
    let fields = html! {
        (required("Name", "name", "text"))
        (required("E-mail address", "email", "email"))
        (role_select("member"))
        (end_input(""))
    };
    let content = form(&visit.session, &visit.page_path("people"), "Show the effect", &fields);
    visit.admin_page("Create a person", Ok(content))
}

pub(super) fn role_select(selected: &str) -> Markup {
    select(
        "Role",
        "role",
        OrgRole::ALL.map(|role| (role.word(), role.word())),
        selected,
    )
}

pub(super) async fn create(sent: Sent) -> Response {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let mut body = json!({ "name": field("name"), "email": field("email"), "role": field("role") });
    body["expires_at"] = end_of(&sent.form);
    let described = facts(&[
        ("Name", html! { (field("name")) }),
        ("E-mail address", html! { (field("email")) }),
        ("Role", html! { (field("role")) }),
        ("Access ends", ends(&body, sent.visit.session.now)),
    ]);
    if let Some(password) = sent.form.secret(&format!("{SECRET}password")) {
        body["password"] = Value::from(password);
    }
    let asks = secret(
        "Password (without one, the person cannot log in)",
        &format!("{SECRET}password"),
        "new-password",
    );
    let review = async { Ok(Review::new("Create the person", described).asking(asks)) };
    let change = Change {
        method: Method::POST,
        path: sent.visit.list("users"),
        body: Some(body),
        then: sent.visit.page_path("people"),
    };
    submit(
        (&sent.visit.session, Some(&sent.visit.place)),
        &sent.form,
        change,
        review,
    )
    .await
}

/// A person with everything that they have in the organization.
struct Person {
    id: String,
    user: Value,
    etag: Option<String>,
    teams: Vec<Value>,
    directory: Directory,
    /// The first role bindings, also by teams.
    bindings: Bindings,
}

impl Person {
    async fn read(visit: &Visit) -> Result<Self, Problem> {
        let id = visit.parameter("id");
        let answer = visit.api().get(path(visit)).await?;
        let selected = BindingFilter {
            people: &[id],
            ..BindingFilter::default()
        };
        let bindings = visit.bindings(&selected, (i64::MIN, ROWS)).await?;
        Ok(Self {
            id: id.to_owned(),
            user: answer.value,
            etag: answer.etag,
            teams: visit.teams_of(&[id]).await?.remove(id).unwrap_or_default(),
            directory: visit.directory(&named_ids(&bindings.all)).await?,
            bindings,
        })
    }

    fn facts(&self, visit: &Visit) -> Markup {
        facts(&[
            ("Name", html! { (text(&self.user, "name")) }),
            ("E-mail address", html! { (text(&self.user, "email")) }),
            ("Role", html! { (text(&self.user, "role")) }),
            (
                "Teams",
                html! { @for team in &self.teams { (visit.link("teams", team)) " " } },
            ),
            ("Access ends", ends(&self.user, visit.session.now)),
            (
                "Membership ends",
                end(text(&self.user, "role_expires_at"), visit.session.now),
            ),
            ("Member since", time(text(&self.user, "added_at"))),
            ("ID", html! { code { (self.id) } }),
        ])
    }

    /// The link to all role bindings, also by teams.
    fn all_bindings(&self, visit: &Visit) -> Markup {
        let path = visit.page_path(&format!("access?person={}", self.id));
        html! { p { a href=(path) { "All role bindings of the person" } } }
    }

    fn keys(&self, visit: &Visit) -> Markup {
        let here = visit.page_path(&format!("people/{}/keys", self.id));
        let rows = html! {
            @for key in list(&self.user, "ssh_keys") {
                tr {
                    td { (text(key, "name")) }
                    td { code { (text(key, "fingerprint")) } }
                    td { (ends(key, visit.session.now)) }
                    td {
                        @if visit.is_admin() {
                            (button(&visit.session, &format!("{here}/{}/delete", text(key, "id")), "Delete"))
                        }
                    }
                }
            }
        };
        table("SSH keys", &["Name", "Fingerprint", "Ends", ""], &rows)
    }
}

/// The path of the person of the page in the API.
fn path(visit: &Visit) -> Path {
    visit.list("users").below(visit.parameter("id"))
}

pub(super) async fn show(visit: Visit) -> Response {
    let person = match Person::read(&visit).await {
        Ok(person) => person,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let content = html! {
        (breadcrumbs(&[(&*visit.page_path("people"), "People and teams")]))
        (person.facts(&visit))
        h2 { "SSH keys" }
        (person.keys(&visit))
        h2 { "Role bindings in effect" }
        (bindings_table(&visit, &person.directory, person.bindings.live()))
        (person.all_bindings(&visit))
        @if visit.is_admin() { (changes(&visit, &person)) }
    };
    visit.page(text(&person.user, "name"), Ok(content))
}

fn changes(visit: &Visit, person: &Person) -> Markup {
    let (session, here) = (&visit.session, visit.page_path(&format!("people/{}", person.id)));
    html! {
        h2 { "Change" }
        p {
            a href=(visit.page_path(&format!("access/grant?person={}", person.id))) { "Grant a role in clusters" }
        }
        (form(session, &format!("{here}/role"), "Change the role", &html! {
            (role_select(text(&person.user, "role")))
            (end_input(text(&person.user, "role_expires_at")))
        }))
        (form(session, &format!("{here}/end"), "Set the end", &end_input(text(&person.user, "expires_at"))))
        @if visit.may(OrgRole::Owner) { (button(session, &format!("{here}/logins"), "End all logins")) }
        (button(session, &format!("{here}/second-factor"), "Reset the second factor"))
        (button(session, &format!("{here}/remove"), "Remove the person"))
    }
}

/// Reviews or makes a change of the person of the page.
async fn change(
    sent: &Sent,
    (title, is_conditional): (&str, bool),
    (method, path, body): (Method, Path, Option<Value>),
    effect: impl FnOnce(&Visit, &Person) -> Markup + Send,
) -> Response {
    let visit = &sent.visit;
    let then = if method == Method::DELETE && is_conditional {
        visit.page_path("people")
    } else {
        visit.page_path(&format!("people/{}", visit.parameter("id")))
    };
    let review = async {
        let person = Person::read(visit).await?;
        let etag = person.etag.clone().filter(|_| is_conditional);
        let effect = html! { (effect(visit, &person)) (person.facts(visit)) };
        Ok::<_, Problem>(Review::new(title, effect).of_version(etag))
    };
    let change = Change {
        method,
        path,
        body,
        then,
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

pub(super) async fn set_role(sent: Sent) -> Response {
    let role = sent.form.get("role").unwrap_or_default().to_owned();
    let mut body = json!({ "role": role });
    // Without it, the end of the membership stays.
    if sent.form.get("expires_at").is_some() {
        body["expires_at"] = end_of(&sent.form);
    }
    let request = (Method::PUT, path(&sent.visit).below("role"), Some(body.clone()));
    change(&sent, ("Change the role", false), request, |visit, person| {
        html! {
            p { "The role: " (changed(text(&person.user, "role"), &role)) }
            @if body.get("expires_at").is_some() {
                p { "The membership of the organization: " (ends(&body, visit.session.now)) }
            }
            @if role == "read_only" { p { "Clusters remove the SSH keys of this person from their nodes." } }
        }
    })
    .await
}

pub(super) async fn set_end(sent: Sent) -> Response {
    let body = json!({ "expires_at": end_of(&sent.form) });
    let request = (Method::PATCH, path(&sent.visit), Some(body.clone()));
    change(&sent, ("Set the end", true), request, |visit, _| {
        html! {
            p { "The new end of the person's access: " (ends(&body, visit.session.now)) }
            p { "From then on, the person cannot log in, and no token and no SSH key of the person is accepted." }
        }
    })
    .await
}

pub(super) async fn end_logins(sent: Sent) -> Response {
    let request = (Method::DELETE, path(&sent.visit).below("tokens"), None);
    change(&sent, ("End all logins", false), request, |_, _| {
        html! { p { "All logins and tokens of this person become invalid. The person can log in again." } }
    })
    .await
}

pub(super) async fn reset_second_factor(sent: Sent) -> Response {
    let request = (Method::DELETE, path(&sent.visit).below("second-factor"), None);
    change(&sent, ("Reset the second factor", false), request, |_, _| {
        html! {
            p { "The security keys and recovery codes of this person are removed. The password alone signs in then." }
        }
    })
    .await
}

pub(super) async fn remove(sent: Sent) -> Response {
    let request = (Method::DELETE, path(&sent.visit), None);
    change(&sent, ("Remove the person", true), request, |visit, person| {
        let bindings = person.bindings.all.iter();
        let own = bindings.filter(|one| text(one, "user_id") == person.id);
        html! {
            p { "The person leaves the organization and the teams below, and loses these role bindings. If this is the \
                person's home, the account goes too, with its password, logins, tokens and SSH keys." }
            (bindings_table(visit, &person.directory, own))
            @if person.bindings.next.is_some() { (person.all_bindings(visit)) }
            (person.keys(visit))
        }
    })
    .await
}

pub(super) async fn delete_key(sent: Sent) -> Response {
    let key = sent.visit.parameter("key").to_owned();
    let request = (Method::DELETE, path(&sent.visit).below("ssh_keys").below(&key), None);
    change(&sent, ("Delete the SSH key", false), request, |_, person| {
        let deleted = list(&person.user, "ssh_keys").find(|one| text(one, "id") == key);
        html! {
            p { "The person cannot log in on nodes with this key any more:" }
            @if let Some(key) = deleted { p { (text(key, "name")) " " code { (text(key, "fingerprint")) } } }
        }
    })
    .await
}
