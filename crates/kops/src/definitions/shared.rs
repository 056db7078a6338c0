//! The parts that all files share: the store with its metrics, and the changes to announce.

use std::collections::BTreeSet;
use std::mem::take;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge};
use tidewaiter_api::InstanceGroupName;
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Metrics, SharedClock};
use tokio::sync::Notify;

use crate::store::{Etag, Read, ReadFile, StoreError};

/// A change of a definition.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Changed {
    /// The Cluster: it concerns every group.
    Cluster,
    /// One group.
    Group(InstanceGroupName),
    /// The owners of the label keys; concerns every Node.
    OwnedKeys,
}

/// Shared by all files.
pub(super) struct Shared {
    pub(super) reads: Reads,
    pub(super) clock: SharedClock,
    pub(super) announcements: Announcements,
    /// Notified when a required file must be read again soon.
    pub(super) away: Notify,
    /// Notified when a file is damaged, or no longer.
    pub(super) damage: Notify,
}

/// Changes that were observed and not announced yet: each once, no matter how often it was observed, and none lost.
#[derive(Debug, Default)]
pub(super) struct Announcements {
    pending: Mutex<BTreeSet<Changed>>,
    added: Notify,
}

impl Announcements {
    pub(super) fn add(&self, changed: Changed) {
        self.pending.lock().insert(changed);
        self.added.notify_one();
    }

    /// Waits until there are pending announcements, and takes all of them.
    pub(super) async fn next(&self) -> BTreeSet<Changed> {
        loop {
            let pending = take(&mut *self.pending.lock());
            if !pending.is_empty() {
                return pending;
            }
            self.added.notified().await;
        }
    }
}

/// The store, with the metrics of its use.
#[derive(Debug)]
pub(super) struct Reads {
    store: Arc<dyn ReadFile>,
    total: IntCounterVec,
    /// The required files that are currently unusable.
    pub(super) problems: IntGauge,
    /// 1 while the keys of at least one group are unknown.
    pub(super) incomplete: IntGauge,
}

impl Reads {
    pub(super) fn new(store: Arc<dyn ReadFile>, metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            store,
            total: metrics.counter_vec(
                "tidewaiter_state_store_reads_total",
                "Number of reads of the state store by outcome (found, not_modified, listed, missing, denied, unavailable, not_a_file, too_large).",
                &["outcome"],
            )?,
            problems: metrics.gauge(
                "tidewaiter_state_store_problems",
                "Number of required state store files that are currently missing, invalid or unreachable.",
            )?,
            incomplete: metrics.gauge(
                "tidewaiter_owned_keys_incomplete",
                "1 while the label keys of some InstanceGroup are unknown, because its file was never valid or the groups cannot be listed.",
            )?,
        })
    }

    pub(super) async fn read(&self, file: &str, known: Option<&Etag>) -> Result<Read, StoreError> {
        let answer = self.store.read(file, known).await;
        let outcome = match &answer {
            Ok(Read::Found { .. }) => "found",
            Ok(Read::NotModified) => "not_modified",
            Err(error) => error.outcome(),
        };
        self.total.with_label_values(&[outcome]).inc();
        answer
    }

    pub(super) async fn list(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        let answer = self.store.list(folder).await;
        let outcome = answer.as_ref().map_or_else(StoreError::outcome, |_| "listed");
        self.total.with_label_values(&[outcome]).inc();
        answer
    }
}
