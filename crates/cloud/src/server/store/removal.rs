//! The removal of an object with everything below it: at once for every reader, but deleted in steps, because a cluster
//! may have 100,000 nodes and all other writes wait for a step.
//!
//! The first commit deletes the object itself and writes a row of `removals` for each kind directly below it. No read
//! finds an object that such a row covers, and its name is free; what is further below is found only through it. Each
//! step deletes a chunk, with its audit rows and events, and covers what is below the chunk. A removal of few objects
//! is complete in its first commit. The writer takes the steps in turn with other writes, and the maintenance task
//! resumes what a restart interrupts. Objects that are not yet deleted count for quotas.

use std::collections::HashSet;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use sqlx::Row as _;
use tracing::warn;
use uuid::Uuid;

use super::draft::{Author, Origin};
use super::error::StoreError;
use super::jobs::{Job, UNLIMITED};
use super::names;
use super::row::{Row, select_all};
use super::source::{Source as _, query};
use super::transaction::{DELETE, Transaction};
use crate::models::Kind;
use crate::server::Error;

/// The maximum number of objects of a step, and of those below a removed object that its first commit deletes.
const STEP: usize = 120;
/// The number of objects that a statement without objects counts as in a step.
const EMPTY: usize = 10;

/// A row of `removals`.
struct Removal {
    parent: String,
    kind: Kind,
    position: i64,
    kept: String,
    by: Author,
}

impl Transaction {
    /// Removes `row` and all its descendants.
    pub async fn remove(&mut self, row: &Row) -> Result<(), Error> {
        if row.kind == Kind::Organization {
            self.record_for_operators(row, DELETE, Some(row.audited()), None)
                .await?;
            let blocked = "DELETE FROM names WHERE kind = 'identities' AND scope_id = $1";
            self.run(query(blocked, &[&row.id])).await?;
        }
        self.remove_all(from_ref(row)).await?;
        if row.kind.children().next().is_none() {
            return Ok(());
        }
        self.cover(from_ref(row)).await?;
        self.sweep(&self.by.queue.clone()).await
    }

    /// Covers what is below `rows`, which are of one kind and removed themselves.
    pub(super) async fn cover(&mut self, rows: &[Row]) -> Result<(), StoreError> {
        let Some(kind) = rows.first().map(|row| row.kind) else {
            return Ok(());
        };
        let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
        for below in kind.children() {
            self.cover_kind(below, &ids, "").await?;
        }
        Ok(())
    }

    /// Removes `identities` of users whose home is `home`, and blocks their names there: no sign-in creates a user
    /// again for a person who was removed.
    pub async fn remove_identities(&mut self, home: &str, identities: &[Row]) -> Result<(), Error> {
        let block = "INSERT INTO names (kind, scope_id, name, id) SELECT kind, $1, name, $1 FROM names \
                     WHERE kind = 'identities' AND scope_id = '' AND id = $2 ON CONFLICT DO NOTHING";
        for identity in identities {
            self.run(query(block, &[home, &identity.id])).await?;
        }
        self.remove_all(identities).await
    }

    /// Returns true if the name of an identity is blocked in the organization `home`.
    pub async fn is_blocked(&mut self, home: &str, name: &str) -> Result<bool, StoreError> {
        let blocked = "SELECT id FROM names WHERE kind = 'identities' AND scope_id = $1 AND name = $2";
        let found = self.fetch(blocked, &[home, &names::stored(name)]).await?;
        Ok(!found.is_empty())
    }

    /// Revokes the tokens of `user` except `kept`, the logins that `user` granted to programs, and the identities: the
    /// thief of a login may have linked one.
    pub async fn remove_tokens(&mut self, user: &Row, kept: Option<Uuid>) -> Result<(), Error> {
        let identities = self.children(Kind::Identity, &user.id).await?;
        self.remove_identities(&user.organization_id, &identities).await?;
        self.forget_login_grants(&user.id).await?;
        let kept = kept.map_or_else(String::new, |kept| kept.to_string());
        self.cover_kind(Kind::Token, &[&user.id], &kept).await?;
        let queue = self.by.queue.clone();
        self.sweep(&queue).await?;
        if self.unswept.contains(&queue) {
            // Callers with tokens that are not yet deleted are cached: a change of the user makes them unknown.
            self.notify(user, &user.organization_id, "update").await?;
        }
        Ok(())
    }

    /// Deletes removed objects of the writes in `queue`, at most [`STEP`], the last removal first.
    pub(super) async fn sweep(&mut self, queue: &str) -> Result<(), Error> {
        let by = self.by.clone();
        let mut left = STEP;
        while let Some(removal) = self.last_removal(queue).await? {
            if left == 0 {
                self.unswept.insert(queue.to_owned());
                break;
            }
            let rows = self.covered(&removal, left).await?;
            left = left.saturating_sub(rows.len().max(EMPTY));
            self.by = removal.by;
            if rows.is_empty() {
                let swept = "DELETE FROM removals WHERE parent_id = $1 AND kind = $2";
                self.run(query(swept, &[&removal.parent, removal.kind.word()])).await?;
                self.silent = true;
            } else {
                self.remove_all(&rows).await?;
                self.cover(&rows).await?;
            }
        }
        self.by = by;
        Ok(())
    }

    /// Finds the removals that are not complete.
    pub(super) async fn resume(&mut self) -> Result<(), StoreError> {
        for row in self.fetch("SELECT DISTINCT queue FROM removals", &[]).await? {
            self.unswept.insert(row.try_get(0)?);
        }
        Ok(())
    }

    async fn last_removal(&mut self, queue: &str) -> Result<Option<Removal>, StoreError> {
        let last = "SELECT parent_id, kind, position, kept, actor, request_id FROM removals WHERE queue = $1 \
                    ORDER BY position DESC, kind, parent_id LIMIT 1";
        let found = self.fetch(last, &[queue]).await?;
        let Some(row) = found.first() else { return Ok(None) };
        let kind: String = row.try_get(1)?;
        Ok(Some(Removal {
            parent: row.try_get(0)?,
            kind: Kind::of(&kind).ok_or_else(|| StoreError::Damaged(format!("the kind {kind} of a removal")))?,
            position: row.try_get(2)?,
            kept: row.try_get(3)?,
            by: Author {
                actor: row.try_get(4)?,
                origin: Origin::read(row.try_get(5)?),
                queue: queue.to_owned(),
            },
        }))
    }

    /// The first `number` objects that `removal` covers.
    async fn covered(&mut self, removal: &Removal, number: usize) -> Result<Vec<Row>, StoreError> {
        let statement =
            select_all!("kind = $1 AND parent_id = $2 AND id <> $3 AND position <= $4 ORDER BY position LIMIT $5");
        let covered = query(statement, &[removal.kind.word(), &removal.parent, &removal.kept]);
        let covered = covered
            .bind(removal.position)
            .bind(i64::try_from(number).unwrap_or(i64::MAX));
        self.all(covered).await?.iter().map(Row::read).collect()
    }
}

/// A step of the removals in one queue.
pub(super) struct Sweep {
    queue: String,
    /// The queues that have one.
    pending: Arc<Mutex<HashSet<String>>>,
}

impl Sweep {
    /// `None` if one is pending.
    pub(super) fn of(queue: &str, pending: &Arc<Mutex<HashSet<String>>>) -> Option<Self> {
        let is_new = pending.lock().insert(queue.to_owned());
        is_new.then(|| Self {
            queue: queue.to_owned(),
            pending: Arc::clone(pending),
        })
    }
}

impl Drop for Sweep {
    fn drop(&mut self) {
        self.pending.lock().remove(&self.queue);
    }
}

#[async_trait]
impl Job for Sweep {
    fn is_abandoned(&self) -> bool {
        false
    }

    fn budget(&self) -> Duration {
        UNLIMITED
    }

    async fn run(&mut self, transaction: &mut Transaction) -> bool {
        let mut swept = transaction.sweep(&self.queue).await;
        if swept.is_ok() {
            swept = transaction.check_growth().await;
        }
        match swept {
            Ok(()) => true,
            Err(error) => {
                warn!(%error, queue = self.queue, "removed objects are not deleted");
                if let Error::Store(error) = error
                    && error.is_of_connection()
                {
                    transaction.lost = Some(error);
                }
                false
            }
        }
    }

    fn finish(self: Box<Self>, _: Result<(), Arc<StoreError>>) {}
}

#[cfg(test)]
mod tests;
