//! Statuses that clusters report. They are most of all changes, so the audit log has only the statuses, and at most one row an
//! hour for each object: a report replaces the one before it. A stream loses nothing, because the new row names the same kind
//! of the same cluster and has a greater number. Of an upgrade, each report has a row, with what differs alone: the status of an upgrade of
//! thousands of nodes has hundreds of kilobytes.

use serde_json::{Map, Value, json};
use sqlx::Row as _;

use super::StoreError;
use super::reads::Source;
use super::row::Row;
use super::transaction::Transaction;
use crate::models::Kind;
use crate::server::Error;

impl Transaction {
    /// Updates the status of `before`. An unchanged one is not written.
    pub async fn set_status(&mut self, before: &Row, status: Value) -> Result<Row, Error> {
        if before.status.as_ref() == Some(&status) {
            return Ok(before.clone());
        }
        let after = Row {
            status: Some(status),
            updated_at: self.now().to_string(),
            ..before.clone()
        };
        self.write(&after).await?;
        if after.kind == Kind::Upgrade {
            let (first, last) = differing(before.status.as_ref(), after.status.as_ref());
            let [first, last] = [first, last].map(|status| json!({ "status": status }).to_string());
            self.record(&after, "update", &first, &last).await?;
            return Ok(after);
        }
        let status = |row: &Row| json!({ "status": row.status }).to_string();
        let first = self.take_report(&after).await?;
        let first = first.unwrap_or_else(|| status(before));
        self.record(&after, "update", &first, &status(&after)).await?;
        Ok(after)
    }

    /// Deletes what the caller, a cluster, reported of the same object since the hour began. Returns the status before that.
    async fn take_report(&mut self, row: &Row) -> Result<Option<String>, StoreError> {
        if !self.by.actor.starts_with("cluster:") {
            return Ok(None);
        }
        // The texts of times are in the order of the times.
        let hour = self.now().strftime("%Y-%m-%dT%H:").to_string();
        let statement = "DELETE FROM changes WHERE substr(actor, 1, 8) = 'cluster:' AND object_id = $1 AND kind = $2 AND actor = $3 AND at >= $4 \
                         RETURNING before";
        let actor = self.by.actor.clone();
        let values = [&row.id, row.kind.word(), &actor, &hour];
        let taken = self.fetch(statement, &values).await?;
        Ok(taken.first().map(|row| row.try_get(0)).transpose()?)
    }
}

/// Both values without the fields in which they are the same, at any depth.
fn differing(before: Option<&Value>, after: Option<&Value>) -> (Value, Value) {
    let (Some(Value::Object(before)), Some(Value::Object(after))) = (before, after) else {
        return (before.cloned().unwrap_or_default(), after.cloned().unwrap_or_default());
    };
    let (mut first, mut last) = (Map::new(), Map::new());
    let keys = before
        .keys()
        .chain(after.keys().filter(|key| !before.contains_key(*key)));
    for key in keys {
        let (old, new) = (before.get(key), after.get(key));
        if old != new {
            let (old, new) = match (old, new) {
                (Some(Value::Object(_)), Some(Value::Object(_))) => differing(old, new),
                _ => (old.cloned().unwrap_or_default(), new.cloned().unwrap_or_default()),
            };
            first.insert(key.clone(), old);
            last.insert(key.clone(), new);
        }
    }
    (first.into(), last.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_log_has_what_differs() {
        let status = |cluster: &str, nodes: Value| json!({"clusterStatus": cluster, "nodeStatuses": nodes, "nodes": 3});
        for (before, after, first, last) in [
            (
                Value::Null,
                status("InProgress", json!({})),
                Value::Null,
                status("InProgress", json!({})),
            ),
            (
                status("InProgress", json!({"a": "Success", "b": "InProgress"})),
                status("InProgress", json!({"a": "Success", "b": "Success", "c": "InProgress"})),
                json!({"nodeStatuses": {"b": "InProgress", "c": null}}),
                json!({"nodeStatuses": {"b": "Success", "c": "InProgress"}}),
            ),
            (
                status("InProgress", json!({"a": "Success"})),
                status("Success", json!({"a": "Success"})),
                json!({"clusterStatus": "InProgress"}),
                json!({"clusterStatus": "Success"}),
            ),
        ] {
            assert_eq!(differing(Some(&before), Some(&after)), (first, last));
        }
    }
}
