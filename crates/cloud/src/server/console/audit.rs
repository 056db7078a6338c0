//! The audit log with filters: of an organization, or of the server for operators.

use axum::extract::RawQuery;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::api::{Answer, Api, Problem};
use super::controls::{ROWS, input, table, time, with_query};
use super::directory::Directory;
use super::fields::FormFields;
use super::page::{Page, failed};
use super::parts::{follows, live};
use super::session::Session;
use super::value::text;
use super::visit::Visit;
use crate::client::Path;
use crate::models::Kind;

/// The kinds that people change most, whose changes the page shows at once. Those of nodes are reports, at any time.
const FOLLOWED: [Kind; 8] = [
    Kind::User,
    Kind::Team,
    Kind::Role,
    Kind::RoleBinding,
    Kind::Registry,
    Kind::Plugin,
    Kind::ClusterLabel,
    Kind::Upgrade,
];

/// Reads the part of the log at `path` that the query of a page selects, with the changes of `actor`.
async fn read(api: &Api, path: Path, query: &FormFields, actor: &str) -> Result<Answer, Problem> {
    let selected = ["before", "kind", "since"].map(|name| (name, query.get(name).unwrap_or_default()));
    let selected = selected.into_iter().chain([("actor", actor)]);
    let filled = selected.filter(|(_, value)| !value.is_empty());
    api.get(filled.fold(path.query("limit", ROWS), |path, (name, value)| path.query(name, value)))
        .await
}

pub(super) async fn show(visit: Visit) -> Response {
    let content = of_organization(&visit).await;
    visit.page("Audit", content)
}

async fn of_organization(visit: &Visit) -> Result<Markup, Problem> {
    let actor = visit
        .id_of(Kind::User, visit.query.get("actor").unwrap_or_default())
        .await?;
    let part = read(visit.api(), visit.list("audit"), &visit.query, &actor).await?;
    let ids = |row| [id_of_actor(text(row, "actor")), text(row, "object_id")];
    let ids: Vec<&str> = part.items().iter().flat_map(ids).collect();
    let directory = visit.directory(&ids).await?;
    let content = content(&visit.page_path("audit"), &visit.query, &part, Some(&directory));
    Ok(html! { (follows(&visit.page_path("events"), &FOLLOWED)) (content) })
}

/// The log of what belongs to no organization.
pub(super) async fn of_server(session: Session, RawQuery(query): RawQuery) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    let actor = query.get("actor").unwrap_or_default();
    let part = read(&session.api, Path::new(["audit"]), &query, actor).await;
    let page = Page {
        title: "Audit of the server",
        session: Some(&session),
        organization: None,
        status: StatusCode::OK,
    };
    match part {
        Ok(part) => page.with(&content("/operators/audit", &query, &part, None)),
        Err(problem) => failed(Some(&session), &problem),
    }
}

fn content(here: &str, query: &FormFields, part: &Answer, directory: Option<&Directory>) -> Markup {
    let value = |name| query.get(name).unwrap_or_default();
    let filters = ["actor", "kind", "since"].map(|name| (name, value(name)));
    let name = |id: &str| directory.map_or_else(|| html! { code { (id) } }, |directory| directory.link(id));
    let rows = html! {
        @for row in part.items() {
            tr {
                td { (time(text(row, "at"))) }
                td { (actor(text(row, "actor"), name)) " " small { (text(row, "address")) } }
                td { (text(row, "action")) }
                td { (text(row, "kind")) " " (name(text(row, "object_id"))) }
                td {
                    details {
                        summary { "Details" }
                        pre { "before: " (pretty(row, "before")) "\nafter: " (pretty(row, "after")) }
                        p { "Request " code { (text(row, "request_id")) } }
                    }
                }
            }
        }
    };
    let shown = html! {
        (table("Audit log", &["Time", "Actor", "Action", "Object", "Change"], &rows))
        @if let Some(before) = &part.after {
            @let path = with_query(here, &filters);
            p { a rel="next" href={ (path) "&before=" (before) } { "Older" } }
        }
    };
    html! {
        form.filter method="get" {
            (input("Actor (e-mail address or ID)", "actor", value("actor")))
            (input("Kind, for example role-bindings", "kind", value("kind")))
            label { "Since (UTC) " input type="date" name="since" value=(value("since")); }
            button type="submit" { "Filter" }
        }
        @if query.get("before").is_some() { (shown) } @else { (live("log", &shown)) }
    }
}

/// The author of a change: `user:ID`, `service_account:ID`, `cluster:ID` or a word.
fn actor(actor: &str, name: impl Fn(&str) -> Markup) -> Markup {
    match id_of_actor(actor) {
        "" => html! { (actor) },
        id => name(id),
    }
}

/// The id of the author of a change; empty if it has none.
fn id_of_actor(actor: &str) -> &str {
    actor.split_once(':').map_or("", |(_, id)| id)
}

fn pretty(row: &Value, field: &str) -> String {
    serde_json::to_string_pretty(&row.get(field)).unwrap_or_default()
}
