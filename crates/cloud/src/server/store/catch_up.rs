//! Publishes committed changes from the table of changes: at the start, and those of other replicas.

use sqlx::AnyPool;

use super::deadline::{Lease, within};
use super::error::StoreError;
use super::feed::{CommittedChange, Feed, scope};
use super::transaction::DELETE;
use crate::models::Kind;

/// A client that missed more changes than this before the process started lists everything again.
pub(super) const REPLAYED: i64 = 10_000;

pub(super) async fn notes_after(pool: &AnyPool, sequence: i64) -> Result<Vec<CommittedChange>, StoreError> {
    let mut reader = Lease::of(pool.acquire().await?);
    let statement = "SELECT sequence, kind, object_id, organization_id, cluster_id, action FROM changes \
                     WHERE sequence > $1 AND action IN ('create', 'update', 'delete') ORDER BY sequence";
    let found = sqlx::query_as(statement).bind(sequence).fetch_all(&mut *reader);
    let found: Vec<(i64, String, String, String, String, String)> = within(found).await?;
    let note = |(sequence, kind, id, organization, cluster, action): (_, String, String, String, String, String)| {
        let kind = Kind::of(&kind)?;
        Some(CommittedChange {
            sequence,
            scope: scope(kind, &id, &organization, &cluster),
            decides: kind.decides_for(&id, action == DELETE),
        })
    };
    Ok(reader.end(found).into_iter().filter_map(note).collect())
}

/// Publishes what is committed and not yet published.
pub(super) async fn catch_up(pool: &AnyPool, feed: &Feed) -> Result<(), StoreError> {
    let notes = notes_after(pool, feed.latest()).await?;
    feed.publish(&notes);
    Ok(())
}
