//! The bytes that are stored of each organization, cluster and caller, counted in the transaction that stores them.
//!
//! - Objects and stored responses have a limit: a change that makes them grow beyond it is refused, and one that makes
//!   them smaller never is.
//! - The audit log drops its oldest rows beyond its limit, in the background, and says so in a row. Nothing is refused
//!   because the log is full: otherwise anyone who fills it would lock the others out. What it has cannot be displaced
//!   at once, because the changes of a day are limited too ([`Pace`]).
//!
//! A new kind of statement that writes or deletes objects, changes or stored responses must [`add`](Transaction::add)
//! what it changes.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::{Deserialize, Serialize};
use sqlx::Row as _;

use super::StoreError;
use super::pace::Pace;
use super::reads::{Source, query};
use super::row::Row;
use super::transaction::Transaction;
use crate::models::Kind;
use crate::server::Error;
use crate::server::metrics::StorageMetrics;
use crate::server::refusal::Refusal;

/// The size of a row without its texts, with its indexes, in bytes. The migration 0007 has the same number.
const ROW: usize = 512;
const MIB: i64 = 1024 * 1024;

/// A class of stored data that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum What {
    /// The objects of an organization.
    Objects,
    /// The objects of a cluster, which are part of its organization's.
    ClusterObjects,
    /// The audit log of an organization, or of what belongs to none, except what clusters change.
    Audit,
    /// The changes by clusters, in the audit log.
    Reports,
    /// The responses to requests of a caller with an Idempotency-Key.
    Replays,
}

impl What {
    /// Its name in the database, the metrics and the settings.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Objects => "objects",
            Self::ClusterObjects => "clusterObjects",
            Self::Audit => "audit",
            Self::Reports => "reports",
            Self::Replays => "replays",
        }
    }

    /// The part of the audit log that has the changes of `actor` in `organization`, and its owner.
    pub(super) fn of_change<'a>(actor: &'a str, organization: &'a str) -> (Self, &'a str) {
        match actor.strip_prefix("cluster:") {
            Some(cluster) => (Self::Reports, cluster),
            None => (Self::Audit, organization),
        }
    }
}

/// The limits of what is stored, in MiB.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct StorageLimits {
    /// The objects of an organization.
    pub objects: NonZeroU32,
    /// The objects of a cluster.
    pub cluster_objects: NonZeroU32,
    /// The audit log of an organization, except what clusters change.
    pub audit: NonZeroU32,
    /// The changes by clusters, in the audit log.
    pub reports: NonZeroU32,
    /// The responses to the requests of a caller with an Idempotency-Key.
    pub replays: NonZeroU32,
}

impl Default for StorageLimits {
    fn default() -> Self {
        let mib = |count| NonZeroU32::new(count).unwrap_or(NonZeroU32::MIN);
        Self {
            objects: mib(1_024),
            cluster_objects: mib(256),
            audit: mib(1_024),
            reports: mib(512),
            replays: mib(16),
        }
    }
}

impl StorageLimits {
    /// In bytes.
    pub(super) fn of(&self, what: What) -> i64 {
        let limit = match what {
            What::Objects => self.objects,
            What::ClusterObjects => self.cluster_objects,
            What::Audit => self.audit,
            What::Reports => self.reports,
            What::Replays => self.replays,
        };
        i64::from(limit.get()) * MIB
    }
}

/// The limits of a server, and the changes of the last day.
#[derive(Debug)]
pub struct Storage {
    /// See [`StorageLimits`].
    pub limits: StorageLimits,
    pub(super) metrics: Option<StorageMetrics>,
    pub(super) pace: Pace,
}

impl Storage {
    pub(in crate::server) fn new(limits: StorageLimits, metrics: Option<StorageMetrics>) -> Self {
        Self {
            limits,
            metrics,
            pace: Pace::new(limits),
        }
    }

    /// A refusal because of the limit of `what`.
    pub(super) fn refuse(&self, what: What, refusal: Refusal) -> Error {
        if let Some(metrics) = &self.metrics {
            metrics.refused.with_label_values(&[what.word()]).inc();
        }
        refusal.into()
    }

    fn check(&self, what: What, bytes: i64) -> Result<(), Error> {
        if bytes <= self.limits.of(what) {
            return Ok(());
        }
        let (mib, word) = (self.limits.of(what) / MIB, what.word());
        let ask = format!("ask the operator of the server to raise storageMiB.{word}");
        let refusal = match what {
            What::Replays => Refusal {
                retry_after: Some(60 * 60),
                ..Refusal::new(
                    http::StatusCode::TOO_MANY_REQUESTS,
                    format!(
                        "Idempotency-Key: the responses stored for you have {mib} MiB, the maximum: \
                         leave the header out, or {ask}"
                    ),
                )
            },
            What::ClusterObjects => Refusal::forbidden(format!(
                "the objects of the cluster have {mib} MiB, the maximum: delete some, or {ask}"
            )),
            _ => Refusal::forbidden(format!(
                "the objects of the organization have {mib} MiB, the maximum: delete some, or {ask}"
            )),
        };
        Err(self.refuse(what, refusal))
    }
}

/// Returns the size of a row with these texts, in bytes.
pub(super) fn size(texts: &[&str]) -> i64 {
    let texts: usize = texts.iter().map(|text| text.len()).sum();
    i64::try_from(texts + ROW).unwrap_or(i64::MAX)
}

/// The bytes that the writes of a commit add, and those that the database has already.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// The bytes of the writes so far.
    total: BTreeMap<(What, String), i64>,
    /// The bytes of the write that is being performed.
    job: BTreeMap<(What, String), i64>,
    /// True if it adds to the audit log without a limit: it deletes something, or has counts.
    pub(super) is_free: bool,
    /// The bytes that were stored when the transaction began, of the owners that were queried.
    begun: BTreeMap<(What, String), i64>,
}

impl Growth {
    /// The write that is being performed is refused.
    pub(super) fn discard(&mut self) {
        self.job.clear();
        self.is_free = false;
    }
}

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
