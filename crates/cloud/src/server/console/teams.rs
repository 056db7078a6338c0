//! The teams of an organization: their members, and the role bindings that go with them.

use std::collections::HashMap;

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::access::bindings_table;
use super::api::{Answer, Problem};
use super::change::{Change, Review, submit};
use super::controls::{ROWS, button, end_input, end_of, ends, facts, form, input, next, required, table, time};
use super::directory::{Bindings, Directory};
use super::lookup::named_ids;
use super::page::failed;
use super::parts::{breadcrumbs, changed};
use super::value::{list, text};
use super::visit::{Sent, Visit};
use crate::models::Kind;
use crate::server::store::BindingFilter;

/// The teams of each person.
pub(super) fn teams_of_people<'a>(teams: impl Iterator<Item = &'a Value>) -> HashMap<&'a str, Vec<&'a Value>> {
    let mut found: HashMap<&str, Vec<&Value>> = HashMap::new();
    for team in teams {
        for user in list(team, "user_ids").filter_map(Value::as_str) {
            found.entry(user).or_default().push(team);
        }
    }
    found
}

/// The teams, and a form for another one.
pub(super) fn teams_table(visit: &Visit, teams: &[Value]) -> Markup {
    let rows = html! {
        @for team in teams {
            tr {
                td { (visit.link("teams", team)) }
                td { (text(team, "description")) }
                td { (list(team, "user_ids").count()) }
            }
        }
    };
    let fields = html! { (required("Name", "name", "text")) (input("Description", "description", "")) };
    html! {
        (table("Teams", &["Name", "Description", "Members"], &rows))
        @if visit.is_admin() { (form(&visit.session, &visit.page_path("teams"), "Create a team", &fields)) }
    }
}

pub(super) async fn create(sent: Sent) -> Response {
    let (visit, body) = (&sent.visit, spec(&sent));
    let effect = html! { p { "A team without members: " strong { (text(&body, "name")) } } };
    let (path, then) = (visit.list("teams"), visit.page_path("people"));
    let change = Change {
        method: Method::POST,
        path,
        body: Some(body),
        then,
    };
    let review = async { Ok(Review::new("Create the team", effect)) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

fn spec(sent: &Sent) -> Value {
    let field = |name| sent.form.get(name).unwrap_or_default();
    json!({ "name": field("name"), "description": field("description") })
}

async fn team(visit: &Visit) -> Result<Answer, Problem> {
    visit.api().get(visit.list("teams").below(visit.parameter("id"))).await
}

/// The team of the page, its first role bindings, and what these and the page name, with the user `other`.
async fn read(visit: &Visit, other: &str) -> Result<(Answer, Directory, Bindings), Problem> {
    let answer = team(visit).await?;
    let selected = BindingFilter {
        team: visit.parameter("id"),
        ..BindingFilter::default()
    };
    let bindings = visit.bindings(&selected, (i64::MIN, ROWS)).await?;
    let mut ids = named_ids(&bindings.all);
    ids.extend(shown_members(visit, &answer.value).0);
    ids.push(other);
    let directory = visit.directory(&ids).await?;
    Ok((answer, directory, bindings))
}

/// The members that a page shows, after the one that its query names, and the last of them if there are more.
fn shown_members<'a>(visit: &Visit, team: &'a Value) -> (Vec<&'a str>, Option<&'a str>) {
    let all: Vec<&str> = list(team, "user_ids").filter_map(Value::as_str).collect();
    let after = visit.query.get("after");
    let begin = all
        .iter()
        .position(|id| Some(*id) == after)
        .map_or(0, |place| place + 1);
    let shown: Vec<&str> = all.iter().skip(begin).take(ROWS).copied().collect();
    let last = shown.last().copied().filter(|_| all.len() > begin + ROWS);
    (shown, last)
}

/// The link to all role bindings of the team of the page.
fn all_bindings(visit: &Visit) -> Markup {
    let path = visit.page_path(&format!("access?team={}", visit.parameter("id")));
    html! { p { a href=(path) { "All role bindings of the team" } } }
}

pub(super) async fn show(visit: Visit) -> Response {
    let (answer, directory, bindings) = match read(&visit, "").await {
        Ok(found) => found,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let team = &answer.value;
    let content = html! {
        (breadcrumbs(&[(&*visit.page_path("people"), "People and teams")]))
        (facts(&[
            ("Name", html! { (text(team, "name")) }),
            ("Description", html! { (text(team, "description")) }),
            ("Created", time(text(team, "created_at"))),
            ("ID", html! { code { (text(team, "id")) } }),
        ]))
        h2 { "Members" }
        (members(&visit, &directory, team))
        h2 { "Role bindings in effect" }
        (bindings_table(&visit, &directory, bindings.live()))
        (all_bindings(&visit))
        @if visit.is_admin() { (changes(&visit, team)) }
    };
    visit.page(text(team, "name"), Ok(content))
}

fn members(visit: &Visit, directory: &Directory, team: &Value) -> Markup {
    let here = visit.page_path(&format!("teams/{}", text(team, "id")));
    let (shown, last) = shown_members(visit, team);
    let rows = html! {
        @for user in shown {
            tr {
                @let path = format!("{here}/members/{user}/remove");
                @let end = team.get("user_ends").and_then(|ends| ends.get(user));
                td { (directory.link(user)) }
                td { (ends(&json!({ "expires_at": end }), visit.session.now)) }
                td { @if visit.is_admin() { (button(&visit.session, &path, "Remove")) } }
            }
        }
    };
    html! {
        (table("Members", &["Name", "Membership ends", ""], &rows))
        (next(&here, last))
    }
}

fn changes(visit: &Visit, team: &Value) -> Markup {
    let (session, here) = (&visit.session, visit.page_path(&format!("teams/{}", text(team, "id"))));
    let renamed = html! {
        (input("Name", "name", text(team, "name")))
        (input("Description", "description", text(team, "description")))
    };
    let member = html! { (required("E-mail address", "person", "text")) (end_input("")) };
    html! {
        h2 { "Change" }
        (form(session, &format!("{here}/members"), "Add a member", &member))
        (form(session, &here, "Rename the team", &renamed))
        (button(session, &format!("{here}/delete"), "Delete the team"))
    }
}

/// Reviews or makes a change of the team of the page that concerns `user`, with what `request` makes of the team.
async fn change(
    sent: &Sent,
    (title, user): (&str, &str),
    request: impl FnOnce(&Value, &Directory) -> (Method, Option<Value>, Markup),
) -> Response {
    let visit = &sent.visit;
    let (answer, directory, bindings) = match read(visit, user).await {
        Ok(found) => found,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let (method, body, effect) = request(&answer.value, &directory);
    let id = visit.parameter("id");
    let rest = if method == Method::DELETE {
        "people".to_owned()
    } else {
        format!("teams/{id}")
    };
    let change = Change {
        method,
        path: visit.list("teams").below(id),
        body,
        then: visit.page_path(&rest),
    };
    let effect = html! {
        (effect)
        p { "The role bindings of the team " strong { (text(&answer.value, "name")) } ":" }
        (bindings_table(visit, &directory, bindings.all.iter()))
        @if bindings.next.is_some() { (all_bindings(visit)) }
    };
    let review = async { Ok(Review::new(title, effect).of_version(answer.etag)) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

pub(super) async fn rename(sent: Sent) -> Response {
    let body = spec(&sent);
    change(&sent, ("Rename the team", ""), |team, _| {
        let effect = html! {
            p { "The name: " (changed(text(team, "name"), text(&body, "name"))) }
            p { "The description: " (changed(text(team, "description"), text(&body, "description"))) }
        };
        (Method::PATCH, Some(body.clone()), effect)
    })
    .await
}

/// The body that replaces the members of a team.
fn members_body<'a>(members: impl Iterator<Item = &'a str>) -> Value {
    json!({ "user_ids": members.collect::<Vec<_>>() })
}

/// Adds a member, or sets the end of the membership of one.
pub(super) async fn add_member(sent: Sent) -> Response {
    let person = sent.form.get("person").unwrap_or_default();
    let id = match sent.visit.id_of(Kind::User, person).await {
        Ok(id) => id,
        Err(problem) => return failed(Some(&sent.visit.session), &problem),
    };
    let (id, end) = (id.as_str(), end_of(&sent.form));
    change(&sent, ("Add the member", id), |team, directory| {
        let others = list(team, "user_ids").filter_map(Value::as_str);
        let mut body = members_body(others.filter(|other| *other != id).chain([id]));
        body["user_ends"] = json!({ id: end });
        let effect = html! {
            p { (directory.link(id)) " becomes a member and gets these roles." }
            (facts(&[("Membership ends", ends(&json!({ "expires_at": end }), sent.visit.session.now))]))
        };
        (Method::PATCH, Some(body), effect)
    })
    .await
}

pub(super) async fn remove_member(sent: Sent) -> Response {
    let person = sent.visit.parameter("user");
    change(&sent, ("Remove the member", person), |team, directory| {
        let members = list(team, "user_ids")
            .filter_map(Value::as_str)
            .filter(|id| *id != person);
        let effect = html! {
            p { (directory.link(person)) " leaves the team, and loses these roles if nothing else gives them." }
        };
        (Method::PATCH, Some(members_body(members)), effect)
    })
    .await
}

pub(super) async fn delete(sent: Sent) -> Response {
    change(&sent, ("Delete the team", ""), |team, directory| {
        let members: Vec<&str> = list(team, "user_ids").filter_map(Value::as_str).collect();
        let effect = html! {
            p { "The team is deleted with its role bindings. These people lose the roles if nothing else gives them:" }
            ul {
                @for user in members.iter().take(ROWS) { li { (directory.link(user)) } }
                @if members.len() > ROWS { li { "and " (members.len() - ROWS) " more" } }
            }
        };
        (Method::DELETE, None, effect)
    })
    .await
}
