//! The last report of a cluster on its page: what it mirrors, holds and rejects, its plugins and its agents.

use maud::{Markup, html};
use serde_json::Value;

use super::cluster::{here, number};
use super::controls::{facts, form, table};
use super::parts::{ago, badge};
use super::value::{list, text};
use super::visit::Visit;
use crate::models::OrgRole;
use crate::reports::agents;
use crate::server::routes::decisions::ACCESS;

/// The state of the mirror of a cluster with this report; empty without a report.
pub(super) fn synced(report: &Value) -> Markup {
    match report.get("synced") {
        None => Markup::default(),
        Some(Value::Bool(true)) => badge("Synced"),
        Some(_) => badge("Not synced"),
    }
}

/// The report, with the buttons of those who may decide about it.
pub(super) fn section(visit: &Visit, report: &Value) -> Markup {
    html! {
        h2 { "Report of the coordinator" }
        (facts(&[
            ("State", synced(report)),
            ("Message", html! { (text(report, "message")) }),
            ("Last seen", ago(text(report, "reported_at"), visit.session.now)),
            ("Agents", html! { (agents(report).unwrap_or_default()) }),
        ]))
        @if report.get("truncated") == Some(&Value::Bool(true)) {
            p.hint { "The report was too large: the cluster left some of it out." }
        }
        (kinds(visit, report))
        (plugins(visit, report))
    }
}

/// Returns true if the cluster follows decisions of the cloud, and the person may make them with `role`.
fn may_decide(visit: &Visit, report: &Value, role: OrgRole) -> bool {
    report.get("accepts_releases") == Some(&Value::Bool(true)) && visit.may(role)
}

/// A button that begins a decision about what these fields name.
fn decision(visit: &Visit, list: &str, label: &str, fields: [(&str, &str); 2]) -> Markup {
    let named = html! { @for (name, value) in fields { input type="hidden" name=(name) value=(value); } };
    form(&visit.session, &here(visit, &format!("/{list}")), label, &named)
}

fn kinds(visit: &Visit, report: &Value) -> Markup {
    let rows = html! {
        @for kind in list(report, "kinds") {
            @let (name, held) = (text(kind, "kind"), kind.get("held").filter(|held| held.is_object()));
            @let role = if ACCESS.contains(&name) { OrgRole::Owner } else { OrgRole::Admin };
            tr {
                td { (name) }
                td { (number(kind, "objects")) }
                td { (ago(text(kind, "last_success"), visit.session.now)) }
                td { @if let Some(held) = held { (held_changes(held)) } }
                td { (rejected(kind)) }
                td { (text(kind, "error")) }
                td {
                    @if let Some(held) = held.filter(|_| may_decide(visit, report, role)) {
                        (decision(visit, "releases", "Release", [("kind", name), ("revision", text(held, "revision"))]))
                    }
                }
            }
        }
    };
    let headers = ["Kind", "Objects", "Last success", "Held", "Rejected", "Error", ""];
    table("Mirrored kinds", &headers, &rows)
}

/// The changes of a kind that a cluster holds.
pub(super) fn held_changes(held: &Value) -> Markup {
    html! {
        (number(held, "deletions")) " deletions, " (number(held, "additions")) " additions"
        span.hint { (text(held, "reason")) }
        ul { @for name in list(held, "names").filter_map(Value::as_str) { li { (name) } } }
    }
}

/// The number of rejected objects of a kind, and the reasons for the first of them.
fn rejected(kind: &Value) -> Markup {
    html! {
        (number(kind, "refused_objects"))
        ul { @for one in list(kind, "refused") { li { (text(one, "id")) ": " (text(one, "reason")) } } }
    }
}

fn plugins(visit: &Visit, report: &Value) -> Markup {
    let rows = html! {
        @for plugin in list(report, "plugins") {
            @let (id, waiting) = (text(plugin, "id"), plugin.get("waiting").filter(|waiting| waiting.is_object()));
            tr {
                td title=(id) { (text(plugin, "name")) }
                td { (text(plugin, "version")) }
                td { (text(plugin, "applied_version")) }
                td { (badge(text(plugin, "state"))) span.hint { (text(plugin, "message")) } }
                td { @if let Some(waiting) = waiting { (waiting_version(waiting)) } }
                td {
                    @if let Some(waiting) = waiting.filter(|_| may_decide(visit, report, OrgRole::Admin)) {
                        (decision(visit, "approvals", "Approve", [("plugin", id), ("digest", text(waiting, "digest"))]))
                    }
                }
            }
        }
    };
    let headers = ["Plugin", "Version", "Applied", "State", "Awaits approval", ""];
    html! { @if list(report, "plugins").next().is_some() { (table("Reported plugins", &headers, &rows)) } }
}

/// The version of a plugin that awaits approval, and what it would change.
pub(super) fn waiting_version(waiting: &Value) -> Markup {
    let lines: Vec<&str> = list(waiting, "diff").filter_map(Value::as_str).collect();
    html! {
        (text(waiting, "version"))
        span.hint {
            (number(waiting, "creates")) " created, " (number(waiting, "changes")) " changed, "
            (number(waiting, "deletes")) " deleted, " (number(waiting, "jobs")) " jobs"
        }
        @if !lines.is_empty() { details { summary { "Changes" } pre tabindex="0" { (lines.join("\n")) } } }
        @if waiting.get("diff_truncated") == Some(&Value::Bool(true)) { span.hint { "Lines are left out." } }
    }
}
