//! Role bindings, which say what people may do in clusters, and the SSH keys with which they log in on nodes. Role
//! bindings are granted, given another end, and withdrawn here.

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::api::Problem;
use super::change::{Change, Review, submit};
use super::controls::{ROWS, button, end, end_input, end_of, ends, facts, form, input, next, table, time, with_query};
use super::directory::{Directory, has_passed};
use super::lookup::named_ids;
use super::page::failed;
use super::parts::breadcrumbs;
use super::rule::Rule;
use super::value::{list, text};
use super::visit::{Sent, Visit};
use crate::models::Kind;
use crate::server::store::BindingFilter;

/// The number of rules of a role that a table shows.
const FEW: usize = 4;

pub(super) async fn show_all(visit: Visit) -> Response {
    let content = bindings(&visit).await;
    visit.page("Access", content)
}

async fn bindings(visit: &Visit) -> Result<Markup, Problem> {
    let entered = ["person", "team", "role", "cluster"].map(|name| visit.query.get(name).unwrap_or_default());
    let [person, team, role, cluster] = entered;
    let (person_id, team_id, role_id, cluster_id) = futures::try_join!(
        visit.id_of(Kind::User, person),
        visit.id_of(Kind::Team, team),
        visit.id_of(Kind::Role, role),
        visit.id_of(Kind::Cluster, cluster)
    )?;
    let people: Vec<&str> = [&*person_id].into_iter().filter(|id| !id.is_empty()).collect();
    let selected = BindingFilter {
        people: &people,
        team: &team_id,
        role: &role_id,
        cluster: &cluster_id,
    };
    let after = visit.query.get("after").and_then(|after| after.parse().ok());
    let found = visit.bindings(&selected, (after.unwrap_or(i64::MIN), ROWS)).await?;
    let directory = visit.directory(&named_ids(&found.all)).await?;
    let (teams, roles, clusters) = futures::try_join!(
        visit.object_field(Kind::Team, ("Team", "team", "all"), team),
        visit.object_field(Kind::Role, ("Role", "role", "all"), role),
        visit.object_field(Kind::Cluster, ("Cluster", "cluster", "all"), cluster)
    )?;
    let next = found.next.map(|next| next.to_string());
    let here = visit.page_path("access");
    let more = |next| {
        let query = [
            ("person", person),
            ("team", team),
            ("role", role),
            ("cluster", cluster),
            ("after", next),
        ];
        with_query(&here, &query)
    };
    Ok(html! {
        p {
            a href=(visit.page_path("access/logins")) { "SSH logins" }
            @if visit.is_admin() { " · " a href=(visit.page_path("access/grant")) { "Grant a role" } }
        }
        form.filter method="get" {
            (input("Person (e-mail address)", "person", person))
            (teams)
            (roles)
            (clusters)
            button type="submit" { "Filter" }
        }
        (bindings_table(visit, &directory, found.all.iter()))
        @if let Some(next) = &next { p { a rel="next" href=(more(next.as_str())) { "Next" } } }
    })
}

/// The bindings as a table, whose ends lead to the bindings.
pub(super) fn bindings_table<'a>(
    visit: &Visit,
    directory: &Directory,
    bindings: impl Iterator<Item = &'a Value>,
) -> Markup {
    let mut bindings = bindings.peekable();
    if bindings.peek().is_none() {
        return html! { p { "No role binding gives access." } };
    }
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
    let answer = visit.part(visit.list("users"), ROWS).await?;
    let now = visit.session.now;
    let users = answer.items().iter().filter(|user| {
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
    let directory = directory_of(visit, &binding).await?;
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

/// The objects that a binding names, and the people of its team that are shown.
async fn directory_of(visit: &Visit, binding: &Value) -> Result<Directory, Problem> {
    let mut ids = named_ids([binding]);
    let named = visit.directory(&ids).await?;
    ids.extend(named.people_of(binding).take(ROWS));
    visit.directory(&ids).await
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
    let content = grant_fields(&visit).await.map(|fields| {
        form(
            &visit.session,
            &visit.page_path("access/grant"),
            "Show the effect",
            &fields,
        )
    });
    visit.admin_page("Grant a role", content)
}

async fn grant_fields(visit: &Visit) -> Result<Markup, Problem> {
    let selected = |name| visit.query.get(name).unwrap_or_default();
    let (teams, roles, clusters) = futures::try_join!(
        visit.object_field(Kind::Team, ("Team", "team", "none"), selected("team")),
        visit.object_field(Kind::Role, ("Role", "role", "choose a role"), selected("role")),
        visit.object_field(
            Kind::Cluster,
            ("Cluster", "cluster", "all clusters"),
            selected("cluster")
        )
    )?;
    Ok(html! {
        p { "The role is for a person or for a team." }
        (input("Person (e-mail address)", "person", selected("person")))
        (teams)
        (roles)
        (clusters)
        (input("Namespace (empty: all)", "namespace", ""))
        (end_input(""))
    })
}

pub(super) async fn grant(sent: Sent) -> Response {
    let visit = &sent.visit;
    let (binding, directory) = match granted(&sent).await {
        Ok(granted) => granted,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let change = Change {
        method: Method::POST,
        path: visit.list("role-bindings"),
        body: Some(binding.clone()),
        then: visit.page_path("access"),
    };
    let review = async { Ok(Review::new("Grant the role", described(visit, &directory, &binding))) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

/// The role binding that a form describes, and the objects that it names.
async fn granted(sent: &Sent) -> Result<(Value, Directory), Problem> {
    let (visit, field) = (&sent.visit, |name| sent.form.get(name).unwrap_or_default());
    let (person, team, role, cluster) = futures::try_join!(
        visit.id_of(Kind::User, field("person")),
        visit.id_of(Kind::Team, field("team")),
        visit.id_of(Kind::Role, field("role")),
        visit.id_of(Kind::Cluster, field("cluster"))
    )?;
    let filled = |id: String| Some(id).filter(|id| !id.is_empty());
    let binding = json!({
        "type": if team.is_empty() { "UserBinding" } else { "TeamBinding" },
        "user_id": filled(person),
        "team_id": filled(team),
        "authorization_role_id": filled(role),
        "cluster_id": filled(cluster),
        "namespace": sent.form.filled("namespace"),
        "expires_at": end_of(&sent.form),
    });
    let directory = directory_of(visit, &binding).await?;
    Ok((binding, directory))
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
        let directory = directory_of(visit, &answer.value).await?;
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
