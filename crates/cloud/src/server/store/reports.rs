//! Statuses that clusters report. They are most of all changes, so the audit log has only the statuses, and at most one row an
//! hour for each object: a report replaces the one before it. A stream loses nothing, because the new row names the same kind
//! of the same cluster and has a greater number.

use serde_json::{Value, json};
use sqlx::Any;

use super::StoreError;
use super::deadline::within;
use super::row::Row;
use super::transaction::Transaction;
use crate::models::Kind;
use crate::server::Error;

impl Transaction {
    /// Updates the status of `before`. An unchanged one is not written.
    ///
    /// # Errors
    /// If the database cannot be written.
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
        let status = |row: &Row| json!({ "status": row.status }).to_string();
        let first = self.take_report(&after).await?;
        let first = first.unwrap_or_else(|| status(before));
        self.record(&after, "update", &first, &status(&after)).await?;
        Ok(after)
    }

    /// Deletes what the caller, a cluster, reported of the same object since the hour began. Returns the status before that. The
    /// steps of an upgrade all remain.
    async fn take_report(&mut self, row: &Row) -> Result<Option<String>, StoreError> {
        if row.kind == Kind::Upgrade || !self.by.actor.starts_with("cluster:") {
            return Ok(None);
        }
        // The texts of times are in the order of the times.
        let hour = self.now().strftime("%Y-%m-%dT%H:").to_string();
        let taken = sqlx::query_as::<Any, (String,)>(
            "DELETE FROM changes WHERE substr(actor, 1, 8) = 'cluster:' AND object_id = $1 AND kind = $2 AND actor = $3 AND at >= $4 \
             RETURNING before",
        )
        .bind(&row.id)
        .bind(row.kind.word())
        .bind(&self.by.actor)
        .bind(hour);
        let taken = within(taken.fetch_optional(&mut *self.connection)).await?;
        Ok(taken.map(|(before,)| before))
    }
}
