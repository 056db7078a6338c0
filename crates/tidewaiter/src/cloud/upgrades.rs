//! Upgrades of the cloud: their progress as a row of a table, and what changes their policy.

use anyhow::Result;
use serde_json::{Value, json};
use tidewaiter_cloud::client::Method;
use tidewaiter_cloud::models::Kind;

use super::output::print;
use super::session::{Session, request, text};
use crate::cli::UpgradeArgs;

/// The upgrade with the columns of a table: what its cluster reports last.
pub(super) fn row(upgrade: &Value) -> Value {
    let mut row = upgrade.clone();
    let status = &upgrade["status"];
    let state = match (status, &status["clusterStatus"]) {
        // Nothing was reported yet.
        (Value::Null, _) => Value::Null,
        (_, Value::Null) => json!("Waiting"),
        (_, state) => state.clone(),
    };
    row["state"] = state;
    row["current_node"] = status["currentNode"].clone();
    for field in ["nodes", "done", "failed"] {
        row[field] = status[field].clone();
    }
    row
}

/// Sets a field of the policy.
pub(super) async fn set(args: &UpgradeArgs, field: &str, value: bool) -> Result<()> {
    let session = Session::open(&args.place)?;
    let list = session.list_path(Kind::Upgrade).await?;
    let id = session.id(Kind::Upgrade, &list, &args.upgrade).await?;
    let change = json!({ "policy": { field: value.then_some(true) } });
    let changed = session
        .send(&request(Method::PATCH, list.below(&id), change, None))
        .await?;
    let word = match (field, value) {
        ("aborted", _) => "aborted",
        (_, true) => "paused",
        (_, false) => "no longer paused",
    };
    print(&format!("Upgrade {} is {word}\n", text(&changed, "id")))
}

#[cfg(test)]
mod tests {
    use super::super::output::table;
    use super::*;

    #[test]
    fn a_table_shows_how_far_an_upgrade_is() {
        let columns = Kind::Upgrade.facts().columns;
        let upgrade =
            |status: Value| row(&json!({"id": "u", "targetVersion": "v1.36.3", "description": "", "status": status}));
        let counts = |state: Value, node: Value| json!({"clusterStatus": state, "nodeStatuses": {}, "currentNode": node, "nodes": 5, "done": 2, "failed": 1});
        let rows = [
            upgrade(Value::Null),
            upgrade(counts(Value::Null, Value::Null)),
            upgrade(counts(json!("InProgress"), json!("w3"))),
            // Of an older coordinator.
            upgrade(json!({"clusterStatus": "Failed", "nodeStatuses": {}, "currentNode": null})),
        ];
        let shown = table(columns, &rows);
        let words: Vec<Vec<&str>> = shown.lines().map(|line| line.split_whitespace().collect()).collect();
        let expected = [
            "TARGETVERSION STATE NODES DONE FAILED CURRENT NODE DESCRIPTION",
            "v1.36.3 - - - - -",
            "v1.36.3 Waiting 5 2 1 -",
            "v1.36.3 InProgress 5 2 1 w3",
            "v1.36.3 Failed - - - -",
        ];
        let expected: Vec<Vec<&str>> = expected.map(|line| line.split_whitespace().collect()).into();
        assert_eq!(words, expected, "{shown}");
    }
}
