//! Upgrades of the cloud: their progress as a row of a table, and what changes their policy.

use anyhow::{Result, anyhow, bail};
use serde_json::{Value, json};
use tidewaiter_api::values::printable;
use tidewaiter_cloud::client::{Method, Path};
use tidewaiter_cloud::models::Kind;

use super::output::print;
use super::session::{Session, if_found, request, text};
use crate::cli::UpgradeArgs;

/// The number of nodes that are named.
const MAX_NAMED: usize = 5;

/// The upgrade with the columns of a table: what its cluster reports last.
pub(super) fn row(upgrade: &Value) -> Value {
    let mut row = upgrade.clone();
    let status = &upgrade["status"];
    row["state"] = match status["clusterStatus"].as_str() {
        Some("Failed") if is_aborted(upgrade) => json!("Aborted"),
        Some(state @ ("Success" | "Failed")) => json!(state),
        _ if is_aborted(upgrade) => json!("Aborting"),
        Some(state) => json!(state),
        // Nothing was reported yet.
        None if status.is_null() => Value::Null,
        None => json!("Waiting"),
    };
    row["current_node"] = status["currentNode"].clone();
    for field in ["nodes", "done", "failed"] {
        row[field] = status[field].clone();
    }
    row
}

/// Returns true if it was aborted. Where that was done in the cluster, and why one that is over has failed, only the
/// message says.
fn is_aborted(upgrade: &Value) -> bool {
    let is_said = |message: &str| {
        let words = message.strip_prefix("it was ").unwrap_or(message);
        words.starts_with("aborted (spec.policy.aborted) or deleted")
    };
    let by_policy = upgrade["policy"]["aborted"] == true;
    match upgrade["status"]["message"].as_str() {
        Some(message) => is_said(message) || (by_policy && !is_over(upgrade)),
        None => by_policy,
    }
}

/// The change of the policy by a command.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    Pause,
    Resume,
    Abort,
}

impl Change {
    /// The merge patch of the policy.
    fn patch(self) -> Value {
        match self {
            Self::Pause => json!({"paused": true}),
            Self::Resume => json!({"paused": null}),
            Self::Abort => json!({"aborted": true}),
        }
    }

    /// Returns the state of the upgrade afterwards.
    const fn done(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "no longer paused",
            Self::Abort => "aborted",
        }
    }

    /// Returns the participle for the message that an upgrade that is over cannot be changed.
    const fn participle(self) -> &'static str {
        match self {
            Self::Pause => "paused",
            Self::Resume => "resumed",
            Self::Abort => "aborted",
        }
    }
}

/// Changes the policy of an upgrade that is not over.
pub(super) async fn change(args: &UpgradeArgs, change: Change) -> Result<()> {
    let session = Session::open(&args.place)?;
    let (path, upgrade) = find(&session, &args.upgrade).await?;
    if is_over(&upgrade) {
        bail!(
            "Upgrade {} is over and cannot be {}: {}",
            text(&upgrade, "id"),
            change.participle(),
            ending(&upgrade)
        );
    }
    if matches!(change, Change::Resume) && upgrade["policy"]["paused"] != true {
        return print(&format!(
            "Upgrade {0} is not paused here; tidewaiter cloud describe upgrade {0} shows what it waits for\n",
            text(&upgrade, "id")
        ));
    }
    let policy = json!({ "policy": change.patch() });
    let upgrade = session.send(&request(Method::PATCH, path, policy, None)).await?;
    print(&format!("Upgrade {} is {}\n", text(&upgrade, "id"), change.done()))
}

/// An upgrade of the cluster, and its path.
pub(super) async fn find(session: &Session, upgrade: &str) -> Result<(Path, Value)> {
    let list = session.list_path(Kind::Upgrade).await?;
    let id = session.id(Kind::Upgrade, &list, upgrade).await?;
    let path = list.below(id);
    let found = if_found(session.get(path.clone()).await)?;
    let (found, _) = found.ok_or_else(|| {
        anyhow!("the cluster has no Upgrade {upgrade:?}: tidewaiter cloud get upgrades shows the ids of its upgrades")
    })?;
    Ok((path, found))
}

/// Returns true if the cluster reports that the upgrade is over.
pub(super) fn is_over(upgrade: &Value) -> bool {
    matches!(upgrade["status"]["clusterStatus"].as_str(), Some("Success" | "Failed"))
}

/// Describes the end of an upgrade, and the next steps.
fn ending(upgrade: &Value) -> String {
    const CREATE: &str = "tidewaiter cloud create upgrade -f FILE";
    let status = &upgrade["status"];
    if status["clusterStatus"] == "Success" {
        return format!("it has succeeded. To upgrade to another version, create another upgrade: {CREATE}");
    }
    let mut reasons = Vec::from_iter(
        status["message"]
            .as_str()
            .map(|text| text.trim_end_matches('.').to_owned()),
    );
    let by_node = status["nodeStatuses"].as_object().into_iter().flatten();
    let failed: Vec<&str> = by_node
        .filter(|(_, state)| *state == "Failed")
        .map(|(node, _)| node.as_str())
        .collect();
    let more = failed.len().saturating_sub(MAX_NAMED);
    let named = failed.get(..MAX_NAMED).unwrap_or(&failed).join(", ");
    match (failed.len(), more) {
        (0, _) => {}
        (_, 0) => reasons.push(format!("failed: {named}")),
        _ => reasons.push(format!("failed: {named} and {more} more")),
    }
    let reasons = if reasons.is_empty() {
        String::new()
    } else {
        format!(" ({})", printable(&reasons.join("; ")))
    };
    format!(
        "it has failed{reasons}. To retry the nodes that are not at the version, create another upgrade to it: {CREATE}. \
         tidewaiter cloud describe upgrade {} shows the state of each node",
        text(upgrade, "id")
    )
}

#[cfg(test)]
mod tests {
    use tidewaiter_upgrade::{Ending, Wait};

    use super::super::output::in_format;
    use super::*;
    use crate::cli::CloudFormat;

    #[test]
    fn a_table_shows_how_far_an_upgrade_is() {
        let columns = Kind::Upgrade.facts().columns;
        let upgrade =
            |status: Value| row(&json!({"id": "u", "targetVersion": "v1.36.3", "description": "", "status": status}));
        let counts = |state: Value, node: Value| json!({"clusterStatus": state, "nodeStatuses": {}, "currentNode": node, "nodes": 5, "done": 2, "failed": 1});
        let aborted = |state: Value, message: Option<&str>| {
            row(
                &json!({"targetVersion": "v1.36.3", "policy": {"aborted": true}, "status": {"clusterStatus": state, "message": message}}),
            )
        };
        let said = |state: Value, message: &str| upgrade(json!({"clusterStatus": state, "message": message}));
        let rows = [
            upgrade(Value::Null),
            upgrade(counts(Value::Null, Value::Null)),
            upgrade(counts(json!("InProgress"), json!("w3"))),
            // Of an older coordinator.
            upgrade(json!({"clusterStatus": "Failed", "nodeStatuses": {}, "currentNode": null})),
            aborted(Value::Null, None),
            aborted(json!("InProgress"), Some("upgrading w3")),
            aborted(json!("Success"), Some("every selected node is at the version")),
            aborted(json!("Failed"), None),
            // It had failed before.
            aborted(json!("Failed"), Some("one node failed")),
            // In the cluster.
            said(json!("InProgress"), &Wait::Aborted(Box::new(Wait::Paused)).to_string()),
            said(json!("Failed"), &format!("{}; w3 failed", Ending::Aborted)),
        ];
        let shown = in_format(&CloudFormat::Table, columns, &rows);
        let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            "TARGETVERSION STATE NODES DONE FAILED CURRENT NODE DESCRIPTION",
            "v1.36.3 - - - - -",
            "v1.36.3 Waiting 5 2 1 -",
            "v1.36.3 InProgress 5 2 1 w3",
            "v1.36.3 Failed - - - -",
            "v1.36.3 Aborting - - - - -",
            "v1.36.3 Aborting - - - - -",
            "v1.36.3 Success - - - - -",
            "v1.36.3 Aborted - - - - -",
            "v1.36.3 Failed - - - - -",
            "v1.36.3 Aborting - - - -",
            "v1.36.3 Aborted - - - -",
        ];
        let expected: Vec<Vec<&str>> = expected.map(|line| line.split_whitespace().collect()).into();
        assert_eq!(words, expected, "{shown}");
    }
}
