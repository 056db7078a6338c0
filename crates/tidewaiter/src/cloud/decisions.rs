//! `tidewaiter cloud release` and `approve`: decisions about what a cluster holds, without access to the cluster. What
//! the cluster reports is shown first, and exactly that is released or approved.

use std::fmt::Write as _;

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{Method, Path, Request};
use tidewaiter_cloud::models::DECISION_LIFETIME;
use tidewaiter_cloud::models::values::DecisionId;
use tidewaiter_kit::SystemClock;

use super::apply::confirm;
use super::output::print;
use super::session::{Session, if_found, request, text};
use crate::cli::ClusterPlace;

/// Releases what the cluster holds of a kind.
pub(super) async fn release(place: &ClusterPlace, kind: &str, yes: bool) -> Result<()> {
    let session = Session::open(place)?;
    let (path, report) = reported(&session).await?;
    let kind = chosen(&report, kind)?;
    print(&held(kind))?;
    accepts(&report, "tidewaiter release")?;
    if !yes {
        confirm("Release these changes?")?;
    }
    let body = json!({ "kind": kind["kind"], "revision": kind["held"]["revision"] });
    let until = decide(&session, path.below("releases"), body).await?;
    let name = printable(text(kind, "kind"));
    print(&format!(
        "the cluster is asked to release {name} until {until}; its report shows when it has\n"
    ))
}

/// Approves the version of a plugin that awaits approval.
pub(super) async fn approve(place: &ClusterPlace, plugin: &str, yes: bool) -> Result<()> {
    let session = Session::open(place)?;
    let (path, report) = reported(&session).await?;
    let plugin = waiting(&report, plugin)?;
    print(&diff(plugin))?;
    if plugin["waiting"]["diff_truncated"] == true {
        bail!(
            "nothing is approved: the cluster does not report the whole diff; see and approve it in the cluster with \
             tidewaiter plugin approve"
        );
    }
    accepts(&report, "tidewaiter plugin approve")?;
    if !yes {
        confirm("Approve exactly this?")?;
    }
    let body = json!({ "plugin": plugin["id"], "digest": plugin["waiting"]["digest"] });
    let until = decide(&session, path.below("approvals"), body).await?;
    let name = printable(text(plugin, "name"));
    print(&format!(
        "the cluster is asked to approve {name} until {until}; its report shows when it has\n"
    ))
}

/// Lists the decisions that the cluster has yet to take.
pub(super) async fn list(place: &ClusterPlace) -> Result<()> {
    let session = Session::open(place)?;
    let path = session.cluster(None).await?.below("decisions");
    let mut shown = String::new();
    for decision in session.list(path).await? {
        let what = match &decision["release"] {
            Value::Null => format!("approval of {}", text(&decision["approval"], "plugin")),
            release => format!("release of {}", text(release, "kind")),
        };
        let _ = writeln!(shown, "{} {}", text(&decision, "id"), printable(&what));
    }
    print(&shown)
}

/// Withdraws a decision that the cluster has yet to take.
pub(super) async fn withdraw(place: &ClusterPlace, id: DecisionId) -> Result<()> {
    let session = Session::open(place)?;
    let path = session.cluster(None).await?.below("decisions").below(id);
    session.send(&Request::new(Method::DELETE, path)).await?;
    print("withdrawn\n")
}

/// The path of the cluster, and its last report.
async fn reported(session: &Session) -> Result<(Path, Value)> {
    let path = session.cluster(None).await?;
    let found = if_found(session.get(path.clone().below("report")).await)?;
    let (report, _) = found.ok_or_else(|| anyhow!("the cluster has never reported what it holds"))?;
    Ok((path, report))
}

fn accepts(report: &Value, instead: &str) -> Result<()> {
    if report["accepts_releases"] != true {
        bail!(
            "the cluster does not accept this from the cloud: set acceptReleasesFromCloud: true in the settings of its \
             coordinator, or run {instead} in the cluster"
        );
    }
    Ok(())
}

/// Sends a decision, once: a repeated one could be about something else. Returns its end.
async fn decide(session: &Session, path: Path, body: Value) -> Result<String> {
    let request = Request {
        once: true,
        ..request(Method::POST, path, body, None)
    };
    session.send(&request).await?;
    let end = SystemClock::shared().now() + DECISION_LIFETIME;
    Ok(end.strftime("%Y-%m-%dT%H:%M:%SZ").to_string())
}

fn items<'a>(report: &'a Value, field: &str) -> impl Iterator<Item = &'a Value> {
    report[field].as_array().into_iter().flatten()
}

/// The kind with this name, of which something is held.
fn chosen<'a>(report: &'a Value, name: &str) -> Result<&'a Value> {
    let held: Vec<&Value> = items(report, "kinds").filter(|kind| kind["held"].is_object()).collect();
    let found = held.iter().find(|kind| text(kind, "kind").eq_ignore_ascii_case(name));
    found.copied().ok_or_else(|| {
        let others: Vec<&str> = held.iter().map(|kind| text(kind, "kind")).collect();
        match others.len() {
            0 => anyhow!("the cluster holds nothing"),
            _ => anyhow!(
                "the cluster holds nothing of {name}, but of {}",
                printable(&others.join(", "))
            ),
        }
    })
}

/// What is held of the kind, in lines.
fn held(kind: &Value) -> String {
    let held = &kind["held"];
    let mut shown = format!(
        "{}: {} would be deleted and {} added ({}); held since {}, revision {}\n",
        text(kind, "kind"),
        held["deletions"],
        held["additions"],
        printable(text(held, "reason")),
        text(held, "since"),
        text(held, "revision"),
    );
    for name in items(held, "names").filter_map(Value::as_str) {
        let _ = writeln!(shown, "  {}", printable(name));
    }
    shown
}

/// The plugin with this name or id, of which a version awaits approval.
fn waiting<'a>(report: &'a Value, name: &str) -> Result<&'a Value> {
    let is_called = |plugin: &&Value| {
        let known = text(plugin, "name");
        text(plugin, "id") == name || known == name || known.split('/').any(|part| part == name)
    };
    let found: Vec<&Value> = items(report, "plugins")
        .filter(|plugin| plugin["waiting"].is_object())
        .filter(is_called)
        .collect();
    match found[..] {
        [plugin] => Ok(plugin),
        [] => bail!("no version of {name:?} awaits approval in the cluster"),
        _ => bail!("{} plugins are named {name:?}: use an id", found.len()),
    }
}

/// What the version would change, in lines.
fn diff(plugin: &Value) -> String {
    let waiting = &plugin["waiting"];
    let mut shown = format!(
        "{}: version {} would create {}, change {} and delete {} objects, and run {} jobs; digest {}\n",
        printable(text(plugin, "name")),
        printable(text(waiting, "version")),
        waiting["creates"],
        waiting["changes"],
        waiting["deletes"],
        waiting["jobs"],
        printable(text(waiting, "digest")),
    );
    for line in items(waiting, "diff").filter_map(Value::as_str) {
        let _ = writeln!(shown, "  {}", printable(line));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_what_the_cluster_reports_is_chosen_and_shown() {
        let report = json!({
            "kinds": [
                {"kind": "Registry", "held": null},
                {"kind": "User", "held": {"deletions": 6, "additions": 0, "revision": "0123456789ab",
                    "since": "2026-01-01T00:00:00Z", "reason": "most of them", "names": ["Bob\u{1b}[31m"]}}],
            "plugins": [
                {"id": "i", "name": "metrics/prometheus", "waiting": {"version": "1.1.0", "digest": "abc", "creates": 1,
                    "changes": 2, "deletes": 0, "jobs": 0, "diff": ["create ConfigMap a/b"]}},
                {"id": "j", "name": "logs/fluentd", "waiting": null}],
        });
        let user = chosen(&report, "user").unwrap();
        assert_eq!(
            held(user),
            "User: 6 would be deleted and 0 added (most of them); held since 2026-01-01T00:00:00Z, revision 0123456789ab\n  \
             Bob\\u{1b}[31m\n"
        );
        let refused = chosen(&report, "registry").unwrap_err().to_string();
        assert_eq!(refused, "the cluster holds nothing of registry, but of User");
        for name in ["metrics", "prometheus", "metrics/prometheus", "i"] {
            assert_eq!(waiting(&report, name).unwrap()["id"], "i", "{name}");
        }
        waiting(&report, "logs").unwrap_err();
        assert_eq!(
            diff(waiting(&report, "i").unwrap()),
            "metrics/prometheus: version 1.1.0 would create 1, change 2 and delete 0 objects, and run 0 jobs; digest abc\n  \
             create ConfigMap a/b\n"
        );
        accepts(&report, "-").unwrap_err();
        accepts(&json!({"accepts_releases": true}), "-").unwrap();
    }
}
