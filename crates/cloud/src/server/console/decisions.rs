//! Releases of what a cluster holds, and approvals of versions of plugins, as its last report names them.

use axum::response::Response;
use http::Method;
use maud::{Markup, html};
use serde_json::{Map, Value};

use super::api::Problem;
use super::change::{Change, Review, submit};
use super::cluster::{here, path, read};
use super::report::{held_changes, waiting_version};
use super::value::{list, text};
use super::visit::Sent;

pub(super) async fn release(sent: Sent) -> Response {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let effect = |report: &Value| {
        let kind = list(report, "kinds").find(|kind| text(kind, "kind") == field("kind"));
        let held = kind.and_then(|kind| kind.get("held"));
        let held = held.filter(|held| text(held, "revision") == field("revision"));
        html! {
            p { "The cluster makes the changes of " strong { (field("kind")) } " that it holds:" }
            @if let Some(held) = held { (held_changes(held)) } @else { (outdated()) }
        }
    };
    decide(&sent, "Release", ("releases", ["kind", "revision"]), effect).await
}

pub(super) async fn approve(sent: Sent) -> Response {
    let field = |name| sent.form.get(name).unwrap_or_default();
    let effect = |report: &Value| {
        let plugin = list(report, "plugins").find(|plugin| text(plugin, "id") == field("plugin"));
        let plugin = plugin.unwrap_or(&Value::Null);
        let waiting = plugin
            .get("waiting")
            .filter(|waiting| text(waiting, "digest") == field("digest"));
        html! {
            p { "The cluster applies this version of the plugin " strong { (text(plugin, "name")) } ":" }
            @if let Some(waiting) = waiting { (waiting_version(waiting)) } @else { (outdated()) }
        }
    };
    decide(&sent, "Approve", ("approvals", ["plugin", "digest"]), effect).await
}

fn outdated() -> Markup {
    html! { p.problem { "The cluster has reported something else meanwhile: go back and see." } }
}

/// Reviews or makes a decision about what the fields name. The API refuses it if the cluster no longer reports that.
async fn decide(
    sent: &Sent,
    title: &str,
    (list, fields): (&str, [&str; 2]),
    effect: impl FnOnce(&Value) -> Markup + Send,
) -> Response {
    let visit = &sent.visit;
    let value = |name: &str| Value::from(sent.form.get(name).unwrap_or_default());
    let body: Map<String, Value> = fields.iter().map(|name| ((*name).to_owned(), value(name))).collect();
    let change = Change {
        method: Method::POST,
        path: path(visit).below(list),
        body: Some(Value::Object(body)),
        then: here(visit, ""),
    };
    let review = async {
        let report = read(visit, path(visit).below("report")).await?;
        Ok::<_, Problem>(Review::new(title, effect(&report)))
    };
    submit((&visit.session, Some(&visit.place)), &sent.form, change, review).await
}
