//! Role bindings, which say what people may do in clusters, and the SSH keys with which they log in on nodes. Role
//! bindings are granted, given another end, and withdrawn here.

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::api::Problem;
use super::change::{Change, Review, submit};
use super::controls::{
    ROWS, button, end, end_input, end_of, ends, facts, form, input, next, select_object, table, time, with_query,
};
use super::directory::{Directory, has_passed};
use super::page::failed;
use super::parts::breadcrumbs;
use super::rule::Rule;
use super::value::{list, text};
use super::visit::{Sent, Visit};

/// The number of rules of a role that a table shows.
const FEW: usize = 4;

pub(super) async fn show_all(visit: Visit) -> Response {
    let content = bindings(&visit).await;
    visit.page("Access", content)
}

async fn bindings(visit: &Visit) -> Result<Markup, Problem> {
    let (directory, bindings) = (visit.directory().await?, visit.bindings().await?);
    let filter = |name| visit.query.filled(name);
    let person = filter("person").map(|name| directory.named_user(name).map_or(name, |user| text(user, "id")));
    let has = |binding: &Value, field, wanted: Option<&str>| wanted.is_none_or(|id| text(binding, field) == id);
    let found = bindings.all.iter().filter(|binding| {
        // A binding of all clusters is also one of each.
        let cluster = filter("cluster").filter(|_| !text(binding, "cluster_id").is_empty());
        person.is_none_or(|user| directory.concerns(binding, user))
            && has(binding, "team_id", filter("team"))
            && has(binding, "authorization_role_id", filter("role"))
            && has(binding, "cluster_id", cluster)
    });
    let skipped: usize = filter("after").and_then(|after| after.parse().ok()).unwrap_or_default();
    let mut found: Vec<&Value> = found.skip(skipped).take(ROWS + 1).collect();
    let has_more = found.len() > ROWS;
    found.truncate(ROWS);
    let shown = skipped.saturating_add(ROWS).to_string();
    let wanted = ["person", "team", "role", "cluster"].map(|name| (name, filter(name).unwrap_or_default()));
    let more: Vec<(&str, &str)> = wanted.into_iter().chain([("after", &*shown)]).collect();
    let here = visit.page_path("access");
    Ok(html! {
        p {
            a href=(visit.page_path("access/logins")) { "SSH logins" }
            @if visit.is_admin() { " · " a href=(visit.page_path("access/grant")) { "Grant a role" } }
        }
        form.filter method="get" {
            (input("Person (e-mail address)", "person", filter("person").unwrap_or_default()))
            (select_object("Team", "team", "all", &directory.teams, wanted[1].1))
            (select_object("Role", "role", "all", &directory.roles, wanted[2].1))
            (select_object("Cluster", "cluster", "all", &directory.clusters, wanted[3].1))
            button type="submit" { "Filter" }
        }
        (bindings_table(visit, &directory, &found))
        @if has_more { p { a rel="next" href=(with_query(&here, &more)) { "Next" } } }
    })
}

/// The bindings as a table, whose ends lead to the bindings.
pub(super) fn bindings_table(visit: &Visit, directory: &Directory, bindings: &[&Value]) -> Markup {
    let rows = html! {
        @for binding in bindings {
            tr {
                td { (subject(directory, binding)) }
                td { (role(directory, binding)) }
                td { (directory.place(binding)) }
                @let path = visit.page_path(&format!("access/{}", text(binding, "id")));
                td { a href=(path) { (ends(binding, visit.session.now)) } }
            }
        }
    };
    if bindings.is_empty() {
        return html! { p { "No role binding gives access." } };
    }
    table("Role bindings", &["Person or team", "Role", "Where", "Ends"], &rows)
}

fn subject(directory: &Directory, binding: &Value) -> Markup {
    let (user, team) = (text(binding, "user_id"), text(binding, "team_id"));
    html! { @if team.is_empty() { (directory.link(user)) } @else { "team " (directory.link(team)) } }
}

/// The role of a binding, and its first rules.
fn role(directory: &Directory, binding: &Value) -> Markup {
    let id = text(binding, "authorization_role_id");
    let rules: Vec<Rule> = directory
        .role(id)
        .into_iter()
        .flat_map(|role| list(role, "rules").map(Rule::of))
        .collect();
    html! {
        (directory.link(id))
        ul.rules {
            @for rule in rules.iter().take(FEW) { li { (rule.to_string()) } }
            @if rules.len() > FEW { li { "and " (rules.len() - FEW) " more rules" } }
        }
    }
}

/// The people who can log in on the nodes of clusters with their SSH keys.
pub(super) async fn logins(visit: Visit) -> Response {
    let content = users_with_keys(&visit).await;
    visit.page("SSH logins", content)
}

async fn users_with_keys(visit: &Visit) -> Result<Markup, Problem> {
    let path = visit.list("users").query("limit", ROWS);
    let answer = visit.api().get(match visit.query.filled("after") {
        Some(after) => path.query("after", after),
        None => path,
    });
    let answer = answer.await?;
    let users = answer.value.as_array().into_iter().flatten();
    let now = visit.session.now;
    let users = users.filter(|user| {
        let ends = ["expires_at", "role_expires_at"].map(|field| text(user, field));
        text(user, "role") != "read_only" && !ends.iter().any(|end| has_passed(end, now))
    });
    let rows = html! {
        @for user in users {
            @for key in list(user, "ssh_keys").filter(|key| !has_passed(text(key, "expires_at"), now)) {
                tr {
                    td { (visit.link("people", user)) }
                    td { (text(key, "name")) " " code { (text(key, "fingerprint")) } }
                    // The key ends with its user.
                    td { (ends(key, now)) }
                    td { (ends(user, now)) }
                    td { (end(text(user, "role_expires_at"), now)) }
                }
            }
        }
    };
    Ok(html! {
        p { "With these keys, people log in on the nodes of all clusters whose agents follow this organization." }
        (table("SSH logins", &["Person", "Key", "Key ends", "Person's access ends", "Membership ends"], &rows))
        (next(&visit.page_path("access/logins"), answer.after.as_deref()))
    })
}

pub(super) async fn show(visit: Visit) -> Response {
    let content = binding(&visit).await;
    visit.page("Role binding", content)
}

async fn binding(visit: &Visit) -> Result<Markup, Problem> {
    let id = visit.parameter("id");
    let binding = visit.api().get(visit.list("role-bindings").below(id)).await?.value;
    let directory = visit.directory().await?;
    let here = visit.page_path(&format!("access/{id}"));
    let session = &visit.session;
    Ok(html! {
        (breadcrumbs(&[(&*visit.page_path("access"), "Access")]))
        (described(visit, &directory, &binding))
        @if visit.is_admin() {
            h2 { "Change" }
            (form(session, &format!("{here}/end"), "Set the end", &end_input(text(&binding, "expires_at"))))
            (button(session, &format!("{here}/withdraw"), "Withdraw the role"))
        }
    })
}

/// A binding, or one that does not exist yet.
fn described(visit: &Visit, directory: &Directory, binding: &Value) -> Markup {
    let mut described = vec![
        ("For", subject(directory, binding)),
        ("Role", role(directory, binding)),
        ("Where", directory.place(binding)),
        ("Ends", ends(binding, visit.session.now)),
    ];
    if !text(binding, "team_id").is_empty() {
        let people: Vec<&str> = directory.people_of(binding).collect();
        let people = html! {
            @for user in people.iter().take(ROWS) { (directory.link(user)) " " }
            @if people.len() > ROWS { "and " (people.len() - ROWS) " more" }
        };
        described.push(("People", people));
    }
    if !text(binding, "id").is_empty() {
        described.push(("Granted", time(text(binding, "created_at"))));
        described.push(("Granted by", directory.link(text(binding, "owner_id"))));
        described.push(("ID", html! { code { (text(binding, "id")) } }));
    }
    facts(&described)
}

pub(super) async fn grant_form(visit: Visit) -> Response {
    let content = visit.names().await.map(|directory| {
        let selected = |name| visit.query.get(name).unwrap_or_default();
        let fields = html! {
            p { "The role is for a person or for a team." }
            (input("Person (e-mail address)", "person", selected("person")))
            (select_object("Team", "team", "none", &directory.teams, selected("team")))
            (select_object("Role", "role", "choose a role", &directory.roles, selected("role")))
            (select_object("Cluster", "cluster", "all clusters", &directory.clusters, selected("cluster")))
            (input("Namespace (empty: all)", "namespace", ""))
            (end_input(""))
        };
        form(
            &visit.session,
            &visit.page_path("access/grant"),
            "Show the effect",
            &fields,
        )
    });
    visit.page("Grant a role", content)
}

pub(super) async fn grant(sent: Sent) -> Response {
    let visit = &sent.visit;
    let directory = match visit.directory().await {
        Ok(directory) => directory,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let field = |name| sent.form.filled(name);
    let person = field("person").map(|name| directory.named_user(name).map_or(name, |user| text(user, "id")));
    let binding = json!({
        "type": if field("team").is_some() { "TeamBinding" } else { "UserBinding" },
        "user_id": person,
        "team_id": field("team"),
        "authorization_role_id": field("role"),
        "cluster_id": field("cluster"),
        "namespace": field("namespace"),
        "expires_at": end_of(&sent.form),
    });
    let change = Change {
        method: Method::POST,
        path: visit.list("role-bindings"),
        body: Some(binding.clone()),
        then: visit.page_path("access"),
    };
    let review = async { Ok(Review::new("Grant the role", described(visit, &directory, &binding))) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

pub(super) async fn set_end(sent: Sent) -> Response {
    let body = json!({ "expires_at": end_of(&sent.form) });
    change(
        &sent,
        Method::PATCH,
        Some(body),
        "Set the end",
        "From then on, the binding gives:",
    )
    .await
}

pub(super) async fn withdraw(sent: Sent) -> Response {
    let effect = "The binding is deleted, and these people lose what no other binding gives them:";
    change(&sent, Method::DELETE, None, "Withdraw the role", effect).await
}

async fn change(sent: &Sent, method: Method, body: Option<Value>, title: &str, effect: &str) -> Response {
    let visit = &sent.visit;
    let path = visit.list("role-bindings").below(visit.parameter("id"));
    let review = async {
        let answer = visit.api().get(path.clone()).await?;
        let directory = visit.directory().await?;
        let end = body
            .as_ref()
            .map(|end| html! { p { "The new end: " (ends(end, visit.session.now)) } });
        let effect = html! {
            p { (effect) }
            (described(visit, &directory, &answer.value))
            @if let Some(end) = &end { (end) }
        };
        Ok::<_, Problem>(Review::new(title, effect).of_version(answer.etag))
    };
    let then = visit.page_path("access");
    let change = Change {
        method,
        path: path.clone(),
        body: body.clone(),
        then,
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}
