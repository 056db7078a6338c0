//! Statuses that clusters report. They are most of all changes, so the audit log has only what differs, and at most one
//! row for each object and window, which is an hour, and a minute for an upgrade: a report is added to the one before
//! it. A stream loses nothing, because the new row names the same kind of the same cluster and has a greater number.
//!
//! What a cluster reports of itself is not in the log, and no event: it may be large, and changes all the time.

use serde_json::{Value, json};
use sqlx::Row as _;

use super::differences::{differing, over};
use super::draft::References;
use super::error::StoreError;
use super::row::{Row, size};
use super::source::Source;
use super::storage_limits::What;
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
        self.write(before, &after).await?;
        let status = |row: &Row| json!({ "status": row.status });
        let (mut first, mut last) = differing(&status(before), &status(&after));
        if let Some((older, newer)) = self.take_report(&after).await? {
            (first, last) = (over(older, first), over(last, newer));
        }
        self.record(&after, "update", Some(first), Some(last)).await?;
        Ok(after)
    }

    /// Stores the report of `cluster` in place of the one before. Its time is that of the report.
    pub async fn set_report(&mut self, cluster: &Row, report: Value) -> Result<Row, Error> {
        let before = if let Some(before) = self.get(Kind::ClusterReport, &cluster.id).await? {
            before
        } else {
            let new = Row {
                organization_id: cluster.organization_id.clone(),
                cluster_id: cluster.id.clone(),
                parent_id: cluster.id.clone(),
                ..Row::new(Kind::ClusterReport, &cluster.id)
            };
            self.insert(new, &References::default()).await?
        };
        let after = Row {
            status: Some(report),
            updated_at: self.now().to_string(),
            ..before.clone()
        };
        self.write(&before, &after).await?;
        self.silent = true;
        Ok(after)
    }

    /// Deletes what the caller, a cluster, reported of the same object since the window began. Returns what that had
    /// changed.
    async fn take_report(&mut self, row: &Row) -> Result<Option<(Value, Value)>, StoreError> {
        let Some(cluster) = self.by.actor.strip_prefix("cluster:").map(str::to_owned) else {
            return Ok(None);
        };
        // The texts of times are in the order of the times.
        let window = match row.kind {
            Kind::Upgrade => "%Y-%m-%dT%H:%M:",
            _ => "%Y-%m-%dT%H:",
        };
        let since = self.now().strftime(window).to_string();
        let statement = "DELETE FROM changes WHERE substr(actor, 1, 8) = 'cluster:' AND object_id = $1 AND kind = $2 \
                         AND actor = $3 AND at >= $4 AND action = 'update' RETURNING before, after";
        let actor = self.by.actor.clone();
        let taken = self
            .fetch(statement, &[&row.id, row.kind.word(), &actor, &since])
            .await?;
        let mut merged: Option<(Value, Value)> = None;
        for row in taken {
            let texts: [&str; 2] = [row.try_get(0)?, row.try_get(1)?];
            self.add(What::Reports, &cluster, -size(&texts));
            let [first, last] = texts.map(|text| serde_json::from_str(text).unwrap_or_default());
            merged = Some(match merged {
                Some((before, after)) => (over(before, first), over(last, after)),
                None => (first, last),
            });
        }
        Ok(merged)
    }
}
