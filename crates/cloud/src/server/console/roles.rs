//! The roles of an organization and their rules. A change is shown with the permissions that people gain and lose.

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Value, json};

use super::access::bindings_table;
use super::api::Problem;
use super::change::{Change, Review, submit};
use super::controls::{ROWS, button, ends, facts, form, input, next, select, table, time};
use super::directory::{Bindings, Directory};
use super::effect::{Effect, MAX_PEOPLE, effects};
use super::lookup::named_ids;
use super::page::failed;
use super::parts::{breadcrumbs, changed};
use super::rule::{Permission, Rule};
use super::value::{list, text};
use super::visit::{Sent, Visit};
use crate::server::store::BindingFilter;

/// The number of permissions of a person that a table shows.
const FEW: usize = 8;
/// The maximum number of role bindings of all people whose permissions are compared.
const MAX_COMPARED: usize = 2_000;
const TYPES: [(&str, &str); 2] = [("kubernetes", "Kubernetes"), ("containership", "cloud")];

fn rules_of(role: &Value) -> Vec<Rule> {
    list(role, "rules").map(Rule::of).collect()
}

pub(super) async fn show_all(visit: Visit) -> Response {
    let content = visit.part(visit.list("roles"), ROWS).await.map(|answer| {
        let rows = html! {
            @for role in answer.items() {
                tr {
                    td { (visit.link("roles", role)) }
                    td { (text(role, "description")) }
                    td { (list(role, "rules").count()) }
                }
            }
        };
        html! {
            @if visit.is_admin() { p { a href=(visit.page_path("roles/new")) { "Create a role" } } }
            (table("Roles", &["Name", "Description", "Rules"], &rows))
            (next(&visit.page_path("roles"), answer.after.as_deref()))
        }
    });
    visit.page("Roles", content)
}

pub(super) async fn create_form(visit: Visit) -> Response {
    let content = form(
        &visit.session,
        &visit.page_path("roles"),
        "Show the effect",
        &fields(&Value::Null),
    );
    visit.admin_page("Create a role", Ok(content))
}

pub(super) async fn show(visit: Visit) -> Response {
    match role(&visit).await {
        Ok((name, content)) => visit.page(&name, Ok(content)),
        Err(problem) => failed(Some(&visit.session), &problem),
    }
}

async fn role(visit: &Visit) -> Result<(String, Markup), Problem> {
    let id = visit.parameter("id");
    let role = visit.api().get(visit.list("roles").below(id)).await?.value;
    let selected = BindingFilter {
        role: id,
        ..BindingFilter::default()
    };
    let bindings = visit.bindings(&selected, (i64::MIN, ROWS)).await?;
    let directory = visit.directory(&named_ids(&bindings.all)).await?;
    let here = visit.page_path(&format!("roles/{id}"));
    let content = html! {
        (breadcrumbs(&[(&*visit.page_path("roles"), "Roles")]))
        (facts(&[
            ("Name", html! { (text(&role, "name")) }),
            ("Description", html! { (text(&role, "description")) }),
            ("Created", time(text(&role, "created_at"))),
            ("ID", html! { code { (id) } }),
        ]))
        h2 { "Rules" }
        (rules(&rules_of(&role)))
        h2 { "Role bindings in effect" }
        (bindings_table(visit, &directory, bindings.live()))
        p { a href=(visit.page_path(&format!("access?role={id}"))) { "All role bindings of the role" } }
        @if visit.is_admin() {
            p { a href=(visit.page_path(&format!("access/grant?role={id}"))) { "Grant the role" } }
            h2 { "Change" }
            (form(&visit.session, &here, "Show the effect", &fields(&role)))
            (button(&visit.session, &format!("{here}/delete"), "Delete the role"))
        }
    };
    Ok((text(&role, "name").to_owned(), content))
}

fn rules(rules: &[Rule]) -> Markup {
    html! {
        @if rules.is_empty() { p { "No rules: the role permits nothing." } }
        ul.rules { @for rule in rules { li { (rule.to_string()) } } }
    }
}

/// The fields of a role: one more rule than it has, to be filled or left empty.
fn fields(role: &Value) -> Markup {
    let mut rules = rules_of(role);
    rules.push(Rule::empty());
    html! {
        (input("Name", "name", text(role, "name")))
        (input("Description", "description", text(role, "description")))
        p {
            "Separate the words of a list by commas. The core group is \"\". Empty a rule to delete it; fill the last \
             one to add a rule."
        }
        @for rule in &rules {
            fieldset {
                legend { "Rule" }
                (select("Type", "type", TYPES, &rule.kind))
                @for (name, label, value) in rule.inputs() { (input(label, name, &value)) }
                label {
                    "Names of objects, one in each line (empty: all) "
                    textarea name="resource_names" { (rule.names()) }
                }
            }
        }
    }
}

fn spec(sent: &Sent) -> (Value, Vec<Rule>) {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let rules = Rule::of_form(&sent.form);
    let written: Vec<Value> = rules.iter().map(Rule::to_value).collect();
    (
        json!({ "name": field("name"), "description": field("description"), "rules": written }),
        rules,
    )
}

pub(super) async fn create(sent: Sent) -> Response {
    let (visit, (body, given)) = (&sent.visit, spec(&sent));
    let effect = html! {
        p { "Nobody has the role " strong { (text(&body, "name")) } " before it is granted. Its rules:" }
        (rules(&given))
    };
    let (path, then) = (visit.list("roles"), visit.page_path("roles"));
    let change = Change {
        method: Method::POST,
        path,
        body: Some(body),
        then,
    };
    let review = async { Ok(Review::new("Create the role", effect)) };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

pub(super) async fn update(sent: Sent) -> Response {
    let (body, rules) = spec(&sent);
    change(&sent, "Change the role", (Method::PUT, Some(body)), &rules).await
}

pub(super) async fn delete(sent: Sent) -> Response {
    change(&sent, "Delete the role", (Method::DELETE, None), &[]).await
}

/// Reviews or makes a change of the role of the page, after which it has the rules `after`.
async fn change(sent: &Sent, title: &str, (method, body): (Method, Option<Value>), after: &[Rule]) -> Response {
    let (visit, id) = (&sent.visit, sent.visit.parameter("id"));
    let path = visit.list("roles").below(id);
    let rest = if method == Method::DELETE {
        "roles".to_owned()
    } else {
        format!("roles/{id}")
    };
    let new = body.clone().unwrap_or_default();
    let review = async {
        let answer = visit.api().get(path.clone()).await?;
        let compared = compared(visit, id).await?;
        let before = rules_of(&answer.value);
        let effects = compared
            .as_ref()
            .and_then(|(directory, bindings)| Some((directory, effects(directory, bindings, id, (&before, after))?)));
        let effect = html! {
            @for field in ["name", "description"] {
                @if text(&answer.value, field) != text(&new, field) && !new.is_null() {
                    p { "The " (field) ": " (changed(text(&answer.value, field), text(&new, field))) }
                }
            }
            h2 { "Rules before" }
            (rules(&before))
            h2 { "Rules after" }
            (rules(after))
            h2 { "Effect on people" }
            p { "At most " (MAX_PEOPLE) " people are compared, without what they also have by other roles." }
            @match &effects {
                Some((directory, effects)) => { (effects_table(visit, directory, effects)) }
                None => { p { "There is too much to be compared: read the rules above." } }
            }
        };
        Ok::<_, Problem>(Review::new(title, effect).of_version(answer.etag))
    };
    let change = Change {
        method,
        path: path.clone(),
        body,
        then: visit.page_path(&rest),
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

/// The live role bindings of the people whom a role concerns first, with what these name: those that are compared.
/// `None` if there are too many.
async fn compared(visit: &Visit, role: &str) -> Result<Option<(Directory, Bindings)>, Problem> {
    let selected = BindingFilter {
        role,
        ..BindingFilter::default()
    };
    let of_role = visit.bindings(&selected, (i64::MIN, MAX_COMPARED)).await?;
    let teams = visit.directory(&named_ids(&of_role.all)).await?;
    let people = of_role.live().flat_map(|binding| teams.people_of(binding));
    let mut people: Vec<&str> = people.take(MAX_PEOPLE).collect();
    people.sort_unstable();
    people.dedup();
    if people.is_empty() {
        return Ok(Some((teams, of_role)));
    }
    let selected = BindingFilter {
        people: &people,
        ..BindingFilter::default()
    };
    let all = visit.bindings(&selected, (i64::MIN, MAX_COMPARED)).await?;
    if all.next.is_some() {
        return Ok(None);
    }
    let mut ids = named_ids(&all.all);
    ids.extend(&people);
    let directory = visit.directory(&ids).await?;
    Ok(Some((directory, all)))
}

fn effects_table(visit: &Visit, directory: &Directory, effects: &[Effect<'_>]) -> Markup {
    if effects.is_empty() {
        return html! { p { "None of them gains or loses a permission." } };
    }
    let permissions = |permissions: &[Permission<'_>]| {
        html! {
            ul.rules {
                @for permission in permissions.iter().take(FEW) { li { (permission.to_string()) } }
                @if permissions.len() > FEW { li { "and " (permissions.len() - FEW) " more" } }
            }
        }
    };
    let rows = html! {
        @for effect in effects {
            tr {
                td { (directory.link(effect.user)) }
                td { (directory.place(effect.binding)) }
                td { (permissions(&effect.gained)) }
                td { (permissions(&effect.lost)) }
                td { (ends(effect.binding, visit.session.now)) }
            }
        }
    };
    table(
        "Effect on people",
        &["Person", "Where", "Gains", "Loses", "Until"],
        &rows,
    )
}
