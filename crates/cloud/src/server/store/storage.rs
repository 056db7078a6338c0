//! The storage limits of a server, and the bytes that the writes of a commit add.

use std::collections::BTreeMap;

use super::metrics::StorageMetrics;
use super::pace::Pace;
use super::storage_limits::{MIB, StorageLimits, What};
use crate::server::Error;
use crate::server::refusal::Refusal;

/// The limits of a server, and the changes of the last day.
#[derive(Debug)]
pub struct Storage {
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

    pub(super) fn check(&self, what: What, bytes: i64) -> Result<(), Error> {
        if bytes <= self.limits.of(what) {
            return Ok(());
        }
        let (mib, word) = (self.limits.of(what) / MIB, what.word());
        let ask = format!("ask the operator of the server to raise storageMiB.{word}");
        let refusal = match what {
            What::Replays => {
                let message = format!(
                    "Idempotency-Key: the responses stored for you have {mib} MiB, the maximum: \
                     leave the header out, or {ask}"
                );
                Refusal::too_many(message, 60 * 60)
            }
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

/// The bytes that the writes of a commit add, and those that the database has already.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// The bytes of the writes so far.
    pub(super) total: BTreeMap<(What, String), i64>,
    /// The bytes of the write that is being performed.
    pub(super) job: BTreeMap<(What, String), i64>,
    /// True if it adds to the audit log without a limit: it deletes something, or has counts.
    pub(super) is_free: bool,
    /// The bytes that were stored when the transaction began, of the owners that were queried.
    pub(super) begun: BTreeMap<(What, String), i64>,
}

impl Growth {
    /// The write that is being performed is refused.
    pub(super) fn discard(&mut self) {
        self.job.clear();
        self.is_free = false;
    }
}
