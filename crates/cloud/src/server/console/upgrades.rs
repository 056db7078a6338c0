//! The upgrades of a cluster: their list, a new one, and the timeline of one with what can be done about it.

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value, json};

use super::api::Problem;
use super::change::{Change, Review, submit};
use super::cluster::{above, here, number, path, read};
use super::controls::{button, facts, form, input, table, time};
use super::fields::FormFields;
use super::page::failed;
use super::parts::{badge, changed, live};
use super::value::text;
use super::visit::{Sent, Visit};
use crate::models::{Kind, UpgradeStatus};

/// The maximum number of nodes in a timeline.
const MAX_NODES: usize = 500;
/// The time that the script of a node may take by default, in seconds.
const NODE_TIMEOUT: &str = "900";

fn may_write(visit: &Visit) -> bool {
    visit.may(Kind::Upgrade.facts().writers)
}

fn progress(upgrade: &Value) -> &Value {
    upgrade.get("status").unwrap_or(&Value::Null)
}

/// Returns true if the policy of the upgrade has this switch on.
fn has(upgrade: &Value, switch: &str) -> bool {
    upgrade.get("policy").and_then(|policy| policy.get(switch)) == Some(&Value::Bool(true))
}

fn has_ended(upgrade: &Value) -> bool {
    let ends = [UpgradeStatus::Success, UpgradeStatus::Failed];
    ends.iter()
        .any(|end| text(progress(upgrade), "clusterStatus") == end.to_string())
}

/// Returns true if nodes of the upgrade are started or wait to be.
fn in_progress(upgrade: &Value) -> bool {
    !has_ended(upgrade)
}

/// The state of an upgrade, with what a person has decided about it.
pub(super) fn upgrade_badge(upgrade: &Value) -> Markup {
    let reported = text(progress(upgrade), "clusterStatus");
    if has_ended(upgrade) {
        return badge(reported);
    }
    badge(match (has(upgrade, "aborted"), has(upgrade, "paused"), reported) {
        (true, _, _) => "Aborted",
        (false, true, _) => "Paused",
        (false, false, "") => "Waiting",
        (false, false, reported) => reported,
    })
}

/// The time at which an upgrade was added: the API has it in seconds.
fn added(upgrade: &Value) -> Markup {
    time(&format!("{}000", text(upgrade, "addedAt")))
}

/// The upgrades, the last one first.
pub(super) fn upgrades_table(visit: &Visit, upgrades: &[Value]) -> Markup {
    let rows = html! {
        @for upgrade in upgrades {
            @let page = here(visit, &format!("/upgrades/{}", text(upgrade, "id")));
            tr {
                td { a href=(page) title=(text(upgrade, "id")) { (text(upgrade, "targetVersion")) } }
                td { (upgrade_badge(upgrade)) }
                td { (count(upgrade)) }
                td { (text(upgrade, "description")) }
                td { (added(upgrade)) }
            }
        }
    };
    html! {
        @if upgrades.is_empty() { p.empty { "There are no upgrades." } } @else {
            (table("Upgrades", &["Version", "State", "Nodes", "Description", "Added"], &rows))
        }
    }
}

/// The number of nodes at the version, of all nodes.
fn count(upgrade: &Value) -> Markup {
    let (nodes, done) = (number(progress(upgrade), "nodes"), number(progress(upgrade), "done"));
    html! { @if !nodes.is_empty() { (if done.is_empty() { "0" } else { done.as_str() }) " of " (nodes) } }
}

/// The form for another upgrade, for those who may create one.
pub(super) fn create_form(visit: &Visit) -> Markup {
    if !may_write(visit) {
        return Markup::default();
    }
    let check = |name: &str, label: &str, is_on: bool| {
        html! { label.check { input type="checkbox" name=(name) value="yes" checked[is_on]; (label) } }
    };
    let fields = html! {
        label { "Version of Kubernetes " input name="version" required placeholder="v1.35.2"; }
        (input("Description", "description", ""))
        label { "Timeout of a node in seconds " input name="timeout" inputmode="numeric" value=(NODE_TIMEOUT); }
        label {
            "Workers of a node pool that are upgraded at once "
            span.hint { "A number or a percentage. Empty: one worker of the cluster at a time." }
            input name="max_unavailable";
        }
        label {
            "Canaries "
            span.hint { "After this number of nodes, the cluster must be healthy for a while. Empty: none." }
            input name="canary" inputmode="numeric";
        }
        (check("drain", "Drain each node first", false))
        (check("require_healthy", "Start nodes only while the cluster is healthy", false))
        (check("paused", "Create it paused, so that its script can be set first", true))
    };
    form(
        &visit.session,
        &here(visit, "/upgrades"),
        "Upgrade the cluster",
        &fields,
    )
}

/// A number as such; anything else as it was entered, which the API refuses or understands.
fn entered(form: &FormFields, name: &str) -> Option<Value> {
    let text = form.filled(name)?;
    Some(text.parse::<u32>().map_or_else(|_| Value::from(text), Value::from))
}

/// The upgrade that a form describes.
fn spec(form: &FormFields) -> Value {
    let mut policy = Map::new();
    for (field, name) in [("maxUnavailable", "max_unavailable"), ("canary", "canary")] {
        if let Some(value) = entered(form, name) {
            policy.insert(field.to_owned(), value);
        }
    }
    for (field, name) in [
        ("drain", "drain"),
        ("requireHealthy", "require_healthy"),
        ("paused", "paused"),
    ] {
        if form.get(name).is_some() {
            policy.insert(field.to_owned(), Value::Bool(true));
        }
    }
    json!({
        "type": "kubernetes",
        "description": form.get("description").unwrap_or_default(),
        "targetVersion": form.get("version").unwrap_or_default(),
        "labelSelector": [],
        "nodeTimeoutSeconds": entered(form, "timeout"),
        "policy": policy,
    })
}

pub(super) async fn create(sent: Sent) -> Response {
    let (visit, spec) = (&sent.visit, spec(&sent.form));
    let change = Change {
        method: Method::POST,
        path: path(visit).below("upgrades"),
        body: Some(spec.clone()),
        then: here(visit, ""),
    };
    let review = async {
        let cluster = read(visit, path(visit)).await?;
        let all = |segment| visit.api().all(path(visit).below(segment));
        let (pools, upgrades) = futures::try_join!(all("node-pools"), all("upgrades"))?;
        Ok::<_, Problem>(Review::new(
            "Upgrade the cluster",
            effect(&cluster, &pools, &upgrades, &spec),
        ))
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

/// The effect of an upgrade: the versions of the node pools before and after it, and how nodes are started.
fn effect(cluster: &Value, pools: &[Value], upgrades: &[Value], spec: &Value) -> Markup {
    let version = text(spec, "targetVersion");
    let before = |pool| text(pool, "kubernetes_version");
    let rows = html! {
        @for pool in pools {
            tr {
                td { (text(pool, "name")) }
                td { (number(pool, "count")) }
                td {
                    @if before(pool).trim_start_matches('v') == version.trim_start_matches('v') { "at " (version) }
                    @else { (changed(before(pool), version)) }
                }
            }
        }
    };
    html! {
        p { "All nodes of the cluster " strong { (text(cluster, "name")) } " are upgraded to " strong { (version) }
            ". The coordinator starts with the control plane, and each node runs the script of the upgrade as root." }
        (table("Node pools", &["Node pool", "Nodes", "Version"], &rows))
        @if let Some(policy) = spec.get("policy").and_then(Value::as_object) {
            @if !policy.is_empty() {
                dl { @for (name, value) in policy { dt { (name) } dd { (value.to_string()) } } }
            }
        }
        @if let Some(other) = upgrades.iter().find(|other| in_progress(other)) {
            p.problem { "An upgrade to " (text(other, "targetVersion")) " has not ended: this one waits for it." }
        }
    }
}

/// The upgrade of the page, and its cluster.
async fn both(visit: &Visit) -> Result<(Value, Value), Problem> {
    let upgrade = path(visit).below("upgrades").below(visit.parameter("id"));
    futures::try_join!(read(visit, path(visit)), read(visit, upgrade))
}

pub(super) async fn show(visit: Visit) -> Response {
    let (cluster, upgrade) = match both(&visit).await {
        Ok(found) => found,
        Err(problem) => return failed(Some(&visit.session), &problem),
    };
    let content = html! {
        (above(&visit, &cluster))
        div data-stream=(here(&visit, "/events")) {
            (live("state", &state(&visit, &upgrade)))
            h2 { "Nodes" }
            (live("timeline", &timeline(&upgrade)))
        }
    };
    visit.page(&format!("Upgrade to {}", text(&upgrade, "targetVersion")), Ok(content))
}

fn state(visit: &Visit, upgrade: &Value) -> Markup {
    let progress = progress(upgrade);
    let field = |name| html! { (text(progress, name)) };
    html! {
        (facts(&[
            ("State", upgrade_badge(upgrade)),
            ("Message", field("message")),
            ("Nodes at the version", count(upgrade)),
            ("Failed nodes", html! { (number(progress, "failed")) }),
            ("Current node", field("currentNode")),
            ("Started", field("currentStartTime")),
            ("Added", added(upgrade)),
            ("Description", html! { (text(upgrade, "description")) }),
            ("ID", html! { code { (text(upgrade, "id")) } }),
        ]))
        @let (nodes, done) = (number(progress, "nodes"), number(progress, "done"));
        @if !nodes.is_empty() && nodes != "0" {
            progress aria-label="Nodes at the version" max=(nodes) value=(if done.is_empty() { "0" } else { done.as_str() }) {}
        }
        @if may_write(visit) && !has_ended(upgrade) && !has(upgrade, "aborted") { (actions(visit, upgrade)) }
    }
}

fn actions(visit: &Visit, upgrade: &Value) -> Markup {
    let action = |word: &str, label| {
        let page = here(visit, &format!("/upgrades/{}/{word}", text(upgrade, "id")));
        button(&visit.session, &page, label)
    };
    html! {
        div.actions {
            @if has(upgrade, "paused") { (action("resume", "Resume")) } @else { (action("pause", "Pause")) }
            (action("abort", "Abort"))
        }
    }
}

/// The nodes in the order of interest: those in progress, those that failed, and the others.
fn timeline(upgrade: &Value) -> Markup {
    let statuses = progress(upgrade).get("nodeStatuses").and_then(Value::as_object);
    let mut nodes: Vec<(&str, &str)> = statuses
        .into_iter()
        .flatten()
        .map(|(node, status)| (node.as_str(), status.as_str().unwrap_or_default()))
        .collect();
    nodes.sort_by_key(|(node, status)| {
        (
            ["InProgress", "Failed"]
                .iter()
                .position(|word| word == status)
                .unwrap_or(2),
            *node,
        )
    });
    html! {
        @if nodes.is_empty() { p.empty { "No node has started." } } @else {
            ol.timeline {
                @for (node, status) in nodes.iter().take(MAX_NODES) { li { (badge(status)) " " (node) } }
                @if nodes.len() > MAX_NODES { li.muted { "and " (nodes.len() - MAX_NODES) " more" } }
            }
        }
    }
}

pub(super) async fn pause(sent: Sent) -> Response {
    let effect = "No further node is started until the upgrade is resumed. Nodes in progress are finished.";
    switch(&sent, "Pause the upgrade", ("paused", true), effect).await
}

pub(super) async fn resume(sent: Sent) -> Response {
    let effect = "The coordinator starts the next node as soon as the policy permits it.";
    switch(&sent, "Resume the upgrade", ("paused", false), effect).await
}

pub(super) async fn abort(sent: Sent) -> Response {
    let effect = "No further node is started, and the upgrade fails when the nodes in progress are finished. Nodes that \
                  are at the new version stay there.";
    switch(&sent, "Abort the upgrade", ("aborted", true), effect).await
}

/// Reviews or makes a change of a switch of the policy.
async fn switch(sent: &Sent, title: &str, (name, on): (&str, bool), consequence: &str) -> Response {
    let visit = &sent.visit;
    let id = visit.parameter("id");
    let mut policy = Map::new();
    policy.insert(name.to_owned(), Value::Bool(on));
    let change = Change {
        method: Method::PATCH,
        path: path(visit).below("upgrades").below(id),
        body: Some(json!({ "policy": policy })),
        then: here(visit, &format!("/upgrades/{id}")),
    };
    let review = async {
        let (cluster, upgrade) = both(visit).await?;
        let effect = html! {
            p { "The upgrade of the cluster " strong { (text(&cluster, "name")) } " to "
                strong { (text(&upgrade, "targetVersion")) } ": " (upgrade_badge(&upgrade)) }
            p { (consequence) }
        };
        // Without a version: a running upgrade reports at any time, and the change is the same for each state of it.
        Ok::<_, Problem>(Review::new(title, effect))
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_the_report_unless_a_person_has_stopped_it() {
        let shown = |upgrade: Value| {
            let shown = upgrade_badge(&upgrade).into_string();
            shown.split(['<', '>']).nth(2).unwrap().to_owned()
        };
        let reported = |status: &str| json!({"status": {"clusterStatus": status}, "policy": {"paused": true}});
        assert_eq!(shown(json!({"status": null})), "Waiting");
        assert_eq!(shown(json!({"status": {"clusterStatus": "InProgress"}})), "InProgress");
        assert_eq!(shown(reported("InProgress")), "Paused");
        assert_eq!(shown(reported("Success")), "Success");
    }

    #[test]
    fn what_is_in_progress_or_failed_comes_first() {
        let nodes = json!({"a": "Success", "b": "Failed", "c": "InProgress", "d": "Success"});
        let shown = timeline(&json!({"status": {"nodeStatuses": nodes}})).into_string();
        let places: Vec<_> = ["</span> c", "</span> b", "</span> a", "</span> d"]
            .iter()
            .map(|node| shown.find(node).unwrap())
            .collect();
        assert!(places.is_sorted(), "{shown}");
    }

    #[test]
    fn a_form_has_numbers_and_percentages() {
        let form = FormFields::parse(b"version=v1.35.2&timeout=600&max_unavailable=25%25&canary=1&drain=yes");
        let policy = json!({"maxUnavailable": "25%", "canary": 1, "drain": true});
        assert_eq!(spec(&form)["policy"], policy);
        assert_eq!(spec(&form)["nodeTimeoutSeconds"], 600);
    }
}
