//! The bytes that are stored of each organization, cluster and caller, counted in the transaction that stores them.
//!
//! - Objects and stored responses have a limit: a change that makes them grow beyond it is refused, and one that makes
//!   them smaller never is.
//! - The audit log drops its oldest rows beyond its limit, in the background, and says so in a row. Nothing is refused
//!   because the log is full: otherwise anyone who fills it would lock the others out. What it has cannot be displaced
//!   at once, because the changes of a day are limited too (`pace.rs`).
//!
//! A new kind of statement that writes or deletes objects, changes or stored responses must [`add`](Transaction::add)
//! what it changes.

use sqlx::Row as _;

use super::error::StoreError;
use super::row::Row;
use super::source::{Source, query};
use super::storage_limits::What;
use super::transaction::Transaction;
use crate::models::Kind;
use crate::server::Error;

impl Transaction {
    /// Counts `bytes` more, or less, of `owner`.
    pub(super) fn add(&mut self, what: What, owner: &str, bytes: i64) {
        *self.growth.job.entry((what, owner.to_owned())).or_default() += bytes;
    }

    /// Counts `bytes` more, or less, of the object `row`. Tokens have a maximum number alone: anyone who fills an
    /// organization must not keep its owner from logging in.
    pub(super) fn add_object(&mut self, row: &Row, bytes: i64) {
        if row.kind == Kind::Token {
            return;
        }
        self.add(What::Objects, &row.organization_id, bytes);
        if !row.cluster_id.is_empty() {
            self.add(What::ClusterObjects, &row.cluster_id, bytes);
        }
    }

    /// Checks the limits of what the write that was performed makes larger, and counts it. One that deletes something
    /// adds to the audit log without a limit: each object was counted when it was created, and others may have to
    /// change because it goes.
    pub(super) async fn check_growth(&mut self) -> Result<(), Error> {
        let is_free = std::mem::take(&mut self.growth.is_free);
        let job = std::mem::take(&mut self.growth.job);
        for (key, &bytes) in &job {
            let (what, owner) = (key.0, &*key.1);
            let before = self.growth.total.get(key).copied().unwrap_or_default();
            match what {
                _ if bytes <= 0 => {}
                What::Audit | What::Reports if is_free => {}
                What::Audit | What::Reports => {
                    let counted = self.storage.pace.count(&self.by.actor, what, owner, bytes);
                    counted.map_err(|refusal| self.storage.refuse(what, refusal))?;
                }
                // The catalogue, which only operators change.
                _ if owner.is_empty() => {}
                _ => {
                    let begun = self.stored(key).await?;
                    self.storage.check(what, begun + before + bytes)?;
                }
            }
        }
        // Only now, because a refused write counts nothing.
        for (key, bytes) in job {
            *self.growth.total.entry(key).or_default() += bytes;
        }
        Ok(())
    }

    async fn stored(&mut self, key: &(What, String)) -> Result<i64, StoreError> {
        if let Some(bytes) = self.growth.begun.get(key) {
            return Ok(*bytes);
        }
        let statement = "SELECT bytes FROM stored WHERE owner = $1 AND what = $2";
        let found = self.fetch(statement, &[&key.1, key.0.word()]).await?;
        let bytes = found.first().map_or(Ok(0), |row| row.try_get(0))?;
        self.growth.begun.insert(key.clone(), bytes);
        Ok(bytes)
    }

    /// Writes what was counted, before the commit.
    pub(super) async fn write_growth(&mut self) -> Result<(), StoreError> {
        let statement = "INSERT INTO stored (owner, what, bytes) VALUES ($1, $2, $3) \
                         ON CONFLICT (owner, what) DO UPDATE SET bytes = stored.bytes + excluded.bytes";
        for ((what, owner), bytes) in std::mem::take(&mut self.growth.total) {
            if bytes != 0 {
                self.run(query(statement, &[&owner, what.word()]).bind(bytes)).await?;
            }
        }
        Ok(())
    }
}
