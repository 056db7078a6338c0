//! Rows of the audit log.

use serde_json::{Value, json};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::deadline::within;
use super::reads::query;
use super::{Store, StoreError};
use crate::models::Kind;

/// The deletions that clusters see.
const DELETIONS: i64 = 1_000;

impl Store {
    /// The audit log of an organization as the API shows it, newest first: at most `limit` changes before the number
    /// `before`.
    pub async fn audit(&self, organization: &str, before: i64, limit: u32) -> Result<Vec<Value>, StoreError> {
        let mut reader = self.reader().await?;
        let found = query(
            "SELECT sequence, at, cluster_id, kind, object_id, action, actor, request_id, before, after FROM changes \
             WHERE organization_id = $1 AND sequence < $2 ORDER BY sequence DESC LIMIT $3",
            &[organization],
        )
        .bind(before)
        .bind(i64::from(limit))
        .fetch_all(&mut *reader);
        let found = within(found).await?;
        let shown: Result<_, sqlx::Error> = reader.end(found).iter().map(shown).collect();
        Ok(shown?)
    }

    /// The last deletions that concern a cluster of an organization, newest first: at most [`DELETIONS`]. An object that exists again, of a
    /// membership for example, is not deleted.
    pub async fn deletions(&self, organization: &str, cluster: &str) -> Result<Vec<Value>, StoreError> {
        let mut reader = self.reader().await?;
        let found = query(
            "SELECT kind, object_id, at FROM changes WHERE organization_id = $1 AND action = 'delete' \
             AND (cluster_id = '' OR cluster_id = $2) AND NOT EXISTS \
             (SELECT 1 FROM objects WHERE objects.kind = changes.kind AND objects.id = changes.object_id) \
             ORDER BY sequence DESC LIMIT $3",
            &[organization, cluster],
        )
        .bind(DELETIONS)
        .fetch_all(&mut *reader);
        let found = within(found).await?;
        let deletions: Result<Vec<_>, sqlx::Error> = reader.end(found).iter().map(deletion).collect();
        Ok(deletions?.into_iter().flatten().collect())
    }
}

/// A deletion: the kind as clusters know it, and the id.
fn deletion(row: &AnyRow) -> Result<Option<Value>, sqlx::Error> {
    let text = |column| row.try_get::<&str, _>(column);
    let (kind, id, at) = (text("kind")?, text("object_id")?, text("at")?);
    let Some(kind) = Kind::of(kind).and_then(|kind| kind.facts().event) else {
        return Ok(None);
    };
    // The id of a membership ends with the user's.
    let id = id.rsplit('.').next().unwrap_or(id);
    Ok(Some(json!({ "kind": kind.word(), "id": id, "at": at })))
}

/// A change with its time and author, and with the object before and after it, without secrets.
fn shown(row: &AnyRow) -> Result<Value, sqlx::Error> {
    let text = |column| row.try_get::<&str, _>(column);
    // `null` before a creation and after a deletion.
    let document = |column| Ok::<Value, sqlx::Error>(serde_json::from_str(text(column)?).unwrap_or_default());
    Ok(json!({
        "id": row.try_get::<i64, _>("sequence")?, "at": text("at")?, "cluster_id": text("cluster_id")?, "kind": text("kind")?,
        "object_id": text("object_id")?, "action": text("action")?, "actor": text("actor")?,
        "request_id": text("request_id")?, "before": document("before")?, "after": document("after")?,
    }))
}
