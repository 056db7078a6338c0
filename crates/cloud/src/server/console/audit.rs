//! The audit log with filters: of an organization, or of the server for operators.

use axum::extract::RawQuery;
use axum::response::Response;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::api::{Api, Problem};
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

/// The number of changes that one page of the log reads at most, and at a time.
const MAX_READ: usize = 5_000;
const BATCH: usize = 1_000;

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

/// The part of the log that a page shows.
struct Part {
    rows: Vec<Value>,
    /// The number of the change before which the next part begins.
    before: Option<String>,
}

/// The filters of a page.
struct Filter<'a> {
    actor: Option<&'a str>,
    kind: Option<&'a str>,
    since: Option<&'a str>,
}

impl<'a> Filter<'a> {
    fn of(query: &'a FormFields, directory: Option<&'a Directory>) -> Self {
        let person = |name| directory?.named_user(name).map(|user| text(user, "id"));
        let actor = query.filled("actor");
        Self {
            actor: actor.map(|name| person(name).unwrap_or(name)),
            kind: query.filled("kind"),
            since: query.filled("since"),
        }
    }

    fn has(&self, row: &Value) -> bool {
        let actor = text(row, "actor");
        let is_actor = |wanted: &str| actor == wanted || actor.split_once(':').is_some_and(|(_, id)| id == wanted);
        self.actor.is_none_or(is_actor) && self.kind.is_none_or(|kind| text(row, "kind") == kind)
    }

    /// Returns true if the change is older than all that are wanted. A date is the beginning of the times of its day.
    fn ends_before(&self, row: &Value) -> bool {
        self.since.is_some_and(|since| text(row, "at") < since)
    }
}

/// Reads the log at `path` until a page is full.
async fn read(api: &Api, path: Path, before: Option<&str>, filter: &Filter<'_>) -> Result<Part, Problem> {
    let mut part = Part {
        rows: Vec::new(),
        before: before.map(str::to_owned),
    };
    for _ in 0..MAX_READ / BATCH {
        let batch = path.clone().query("limit", BATCH);
        let answer = api.get(match &part.before {
            Some(before) => batch.query("before", before),
            None => batch,
        });
        let rows = answer.await?.value;
        let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
        let is_end = rows.is_empty();
        for row in rows {
            if filter.ends_before(row) {
                return Ok(Part { before: None, ..part });
            }
            if filter.has(row) {
                part.rows.push(row.clone());
            }
            part.before = row.get("id").map(Value::to_string);
            if part.rows.len() == ROWS {
                return Ok(part);
            }
        }
        if is_end {
            return Ok(Part { before: None, ..part });
        }
    }
    Ok(part)
}

pub(super) async fn show(visit: Visit) -> Response {
    let content = of_organization(&visit).await;
    visit.page("Audit", content)
}

async fn of_organization(visit: &Visit) -> Result<Markup, Problem> {
    // First, because only admins may read it.
    visit.api().get(visit.list("audit").query("limit", 1)).await?;
    let directory = visit.names().await?;
    let filter = Filter::of(&visit.query, Some(&directory));
    let part = read(visit.api(), visit.list("audit"), visit.query.filled("before"), &filter).await?;
    let content = content(&visit.page_path("audit"), &visit.query, &part, Some(&directory));
    Ok(html! { (follows(&visit.page_path("events"), &FOLLOWED)) (content) })
}

/// The log of what belongs to no organization.
pub(super) async fn of_server(session: Session, RawQuery(query): RawQuery) -> Response {
    let query = FormFields::parse(query.unwrap_or_default().as_bytes());
    let filter = Filter::of(&query, None);
    let part = read(&session.api, Path::new(["audit"]), query.filled("before"), &filter).await;
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

fn content(here: &str, query: &FormFields, part: &Part, directory: Option<&Directory>) -> Markup {
    let value = |name| query.get(name).unwrap_or_default();
    let filters = ["actor", "kind", "since"].map(|name| (name, value(name)));
    let name = |id: &str| directory.map_or_else(|| html! { code { (id) } }, |directory| directory.link(id));
    let rows = html! {
        @for row in &part.rows {
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
        @if let Some(before) = &part.before {
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
    let Some((_, id)) = actor.split_once(':') else {
        return html! { (actor) };
    };
    name(id)
}

fn pretty(row: &Value, field: &str) -> String {
    serde_json::to_string_pretty(&row.get(field)).unwrap_or_default()
}
