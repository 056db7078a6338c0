//! The teams of an organization: their members, and the role bindings that go with them.

use std::collections::HashMap;

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::access::bindings_table;
use super::api::{Answer, Problem};
use super::change::{Change, Review, submit};
use super::controls::{button, end, facts, form, input, required, table, time};
use super::directory::{Bindings, Directory};
use super::page::failed;
use super::parts::{breadcrumbs, changed};
use super::value::{list, text};
use super::visit::{Sent, Visit};

/// Returns true if the user is a member of the team.
pub(super) fn has_member(team: &Value, user: &str) -> bool {
    list(team, "user_ids").any(|id| id.as_str() == Some(user))
}

/// The teams of each person.
pub(super) fn teams_of_people(teams: &[Value]) -> HashMap<&str, Vec<&Value>> {
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

/// The team of the page with the names of its organization, and its role bindings.
async fn read(visit: &Visit) -> Result<(Answer, Directory, Bindings), Problem> {
    Ok((team(visit).await?, visit.directory().await?, visit.bindings().await?))
}

fn of_team<'a>(bindings: impl Iterator<Item = &'a Value>, team: &str) -> Vec<&'a Value> {
    bindings.filter(|binding| text(binding, "team_id") == team).collect()
}

pub(super) async fn show(visit: Visit) -> Response {
    let (answer, directory, bindings) = match read(&visit).await {
        Ok(found) => found,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let team = &answer.value;
    let live = of_team(bindings.live(), visit.parameter("id"));
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
        (bindings_table(&visit, &directory, &live))
        @if visit.is_admin() { (changes(&visit, team)) }
    };
    visit.page(text(team, "name"), Ok(content))
}

fn members(visit: &Visit, directory: &Directory, team: &Value) -> Markup {
    let here = visit.page_path(&format!("teams/{}", text(team, "id")));
    let rows = html! {
        @for user in list(team, "user_ids").filter_map(Value::as_str) {
            tr {
                td { (directory.link(user)) }
                td { (end(text(team.get("user_ends").unwrap_or(&Value::Null), user), visit.session.now)) }
                @let path = format!("{here}/members/{user}/remove");
                td { @if visit.is_admin() { (button(&visit.session, &path, "Remove")) } }
            }
        }
    };
    table("Members", &["Name", "Membership ends", ""], &rows)
}

fn changes(visit: &Visit, team: &Value) -> Markup {
    let (session, here) = (&visit.session, visit.page_path(&format!("teams/{}", text(team, "id"))));
    let renamed = html! {
        (input("Name", "name", text(team, "name")))
        (input("Description", "description", text(team, "description")))
    };
    html! {
        h2 { "Change" }
        (form(session, &format!("{here}/members"), "Add a member", &required("E-mail address", "person", "text")))
        (form(session, &here, "Rename the team", &renamed))
        (button(session, &format!("{here}/delete"), "Delete the team"))
    }
}

/// Reviews or makes a change of the team of the page, with what `request` makes of the team.
async fn change(
    sent: &Sent,
    title: &str,
    request: impl FnOnce(&Value, &Directory) -> (Method, Option<Value>, Markup),
) -> Response {
    let visit = &sent.visit;
    let (answer, directory, bindings) = match read(visit).await {
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
        (bindings_table(visit, &directory, &of_team(bindings.all.iter(), id)))
    };
    let review = async { Ok(Review::new(title, effect).of_version(answer.etag)) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

pub(super) async fn rename(sent: Sent) -> Response {
    let body = spec(&sent);
    change(&sent, "Rename the team", |team, _| {
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

pub(super) async fn add_member(sent: Sent) -> Response {
    let person = sent.form.get("person").unwrap_or_default();
    change(&sent, "Add the member", |team, directory| {
        let id = directory.named_user(person).map_or(person, |user| text(user, "id"));
        let members = list(team, "user_ids").filter_map(Value::as_str).chain([id]);
        let effect = html! { p { (directory.link(id)) " becomes a member and gets these roles." } };
        (Method::PATCH, Some(members_body(members)), effect)
    })
    .await
}

pub(super) async fn remove_member(sent: Sent) -> Response {
    let person = sent.visit.parameter("user");
    change(&sent, "Remove the member", |team, directory| {
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
    change(&sent, "Delete the team", |team, directory| {
        let effect = html! {
            p { "The team is deleted with its role bindings. These people lose the roles if nothing else gives them:" }
            ul { @for user in list(team, "user_ids").filter_map(Value::as_str) { li { (directory.link(user)) } } }
        };
        (Method::DELETE, None, effect)
    })
    .await
}
