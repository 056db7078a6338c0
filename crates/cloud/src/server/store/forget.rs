//! Deletes the oldest rows of the audit log: after their time, and beyond the limit of their organization or cluster.
//!
//! Changes that streams replay are never deleted.

use jiff::Timestamp;
use serde_json::{Value, json};
use sqlx::Row as _;
use sqlx::any::AnyRow;

use super::catch_up::REPLAYED;
use super::database::Store;
use super::deadline::within;
use super::error::StoreError;
use super::maintenance::Retention;
use super::row::size;
use super::source::{Source, query};
use super::storage_limits::{StorageLimits, What};
use super::transaction::Transaction;

/// The maximum number of changes that are deleted in one transaction.
const FORGOTTEN: i64 = 5_000;

/// An owner that has more than its limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub(super) what: What,
    pub(super) owner: String,
    bytes: i64,
}

impl Store {
    /// The organizations and clusters whose part of the audit log is larger than `limits` permit.
    pub(super) async fn excesses(&self, limits: &StorageLimits) -> Result<Vec<Excess>, StoreError> {
        let mut excesses = Vec::new();
        for what in [What::Audit, What::Reports] {
            let mut reader = self.reader().await?;
            let statement = "SELECT owner, bytes - $2 FROM stored WHERE what = $1 AND bytes > $2";
            let found = query(statement, &[what.word()]);
            let found = within(found.bind(limits.of(what)).fetch_all(&mut *reader)).await?;
            for row in reader.end(found) {
                let (owner, bytes) = (row.try_get(0)?, row.try_get(1)?);
                excesses.push(Excess { what, owner, bytes });
            }
        }
        Ok(excesses)
    }
}

impl Transaction {
    /// Deletes the oldest changes that are older than `retention`.
    pub(super) async fn forget_changes(&mut self, now: Timestamp, retention: Retention) -> Result<(), StoreError> {
        let all = "DELETE FROM changes WHERE sequence < (SELECT MIN(sequence) FROM changes) + $1 \
                   AND sequence <= $2 AND at < $3 \
                   RETURNING organization_id, actor, OCTET_LENGTH(before) + OCTET_LENGTH(after)";
        // What clusters wrote has an index. Only the first of them are read: all of them would delay every write.
        let reports = "DELETE FROM changes WHERE sequence IN (SELECT sequence FROM changes \
                       WHERE substr(actor, 1, 8) = 'cluster:' ORDER BY sequence LIMIT $1) \
                       AND sequence <= $2 AND at < $3 \
                       RETURNING organization_id, actor, OCTET_LENGTH(before) + OCTET_LENGTH(after)";
        for (statement, retention) in [(all, retention.changes), (reports, retention.reports)] {
            let before = now.saturating_sub(retention).unwrap_or(Timestamp::MIN);
            let old = query(statement, &[]).bind(FORGOTTEN).bind(self.sequence - REPLAYED);
            let old = old.bind(before.to_string()).fetch_all(&mut *self.connection);
            for row in within(old).await? {
                let (what, owner) = What::of_change(row.try_get(1)?, row.try_get(0)?);
                self.add(what, owner, -(row.try_get::<i64, _>(2)? + size(&[])));
            }
        }
        Ok(())
    }

    /// Deletes the oldest changes of `excess`, as many as are too many, and says so in a row of the audit log. Returns
    /// their number.
    pub(super) async fn forget_excess(&mut self, excess: &Excess) -> Result<u64, StoreError> {
        let (oldest, delete) = match excess.what {
            What::Reports => (
                "SELECT sequence, at, organization_id, OCTET_LENGTH(before) + OCTET_LENGTH(after) FROM changes \
                 WHERE substr(actor, 1, 8) = 'cluster:' AND actor = $1 AND sequence <= $2 ORDER BY sequence LIMIT $3",
                "DELETE FROM changes WHERE substr(actor, 1, 8) = 'cluster:' AND actor = $1 AND sequence <= $2",
            ),
            _ => (
                "SELECT sequence, at, organization_id, OCTET_LENGTH(before) + OCTET_LENGTH(after) FROM changes \
                 WHERE organization_id = $1 AND substr(actor, 1, 8) <> 'cluster:' AND action <> 'forget' \
                 AND sequence <= $2 ORDER BY sequence LIMIT $3",
                "DELETE FROM changes WHERE organization_id = $1 AND substr(actor, 1, 8) <> 'cluster:' \
                 AND action <> 'forget' AND sequence <= $2",
            ),
        };
        let of = match excess.what {
            What::Reports => format!("cluster:{}", excess.owner),
            _ => excess.owner.clone(),
        };
        let found = query(oldest, &[&of]).bind(self.sequence - REPLAYED).bind(FORGOTTEN);
        let found = within(found.fetch_all(&mut *self.connection)).await?;
        let (mut bytes, mut count, mut last) = (0, 0, None);
        for row in &found {
            bytes += row.try_get::<i64, _>(3)? + size(&[]);
            (count, last) = (count + 1, Some(row));
            if bytes >= excess.bytes {
                break;
            }
        }
        let Some(last) = last else { return Ok(0) };
        self.run(query(delete, &[&of]).bind(last.try_get::<i64, _>(0)?)).await?;
        self.add(excess.what, &excess.owner, -bytes);
        self.mark(excess, last, count).await?;
        Ok(count)
    }

    /// Replaces the row that says how many changes were deleted, and the time of the last of them.
    async fn mark(&mut self, excess: &Excess, last: &AnyRow, count: u64) -> Result<(), StoreError> {
        let (until, organization): (&str, &str) = (last.try_get(1)?, last.try_get(2)?);
        let statement = "DELETE FROM changes WHERE action = 'forget' AND object_id = $1 AND organization_id = $2 \
                         RETURNING after";
        let mut all = count;
        for row in self.fetch(statement, &[&excess.owner, organization]).await? {
            let before: &str = row.try_get(0)?;
            let marked: Value = serde_json::from_str(before).unwrap_or_default();
            all += marked["changes"].as_u64().unwrap_or_default();
            self.add(What::Audit, organization, -size(&[before]));
        }
        let cluster = if excess.what == What::Reports {
            &*excess.owner
        } else {
            ""
        };
        let after = json!({ "changes": all, "until": until }).to_string();
        self.add_change((organization, cluster, "audit", &excess.owner), "forget", "", &after)
            .await
    }
}
