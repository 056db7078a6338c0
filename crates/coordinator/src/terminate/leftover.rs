//! A termination that another process began: most often that of an installation before this one, in which nothing works
//! until somebody withdraws the request. When it is complete, this replica is not ready, and the leader says so in
//! `CloudSync`.
//!
//! A replica that runs when the termination is requested stays ready: the client that requested it asks how far it is.

use std::sync::{Arc, OnceLock};

use kube::core::ObjectMeta;
use tidewaiter_api::cloud_sync::{CLOUD_SYNC, SYNCED};
use tidewaiter_api::{CloudSync, CloudSyncSpec, CloudSyncStatus, Condition, ConditionStatus};
use tidewaiter_kit::{Cache, SharedClock, WriteError, Writer};
use tracing::warn;

use super::marker::{Marker, Progress};
use super::marker_key;

/// The reason of the condition.
const TERMINATED: &str = "Terminated";

/// The marker that this process found at its start. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct Leftover {
    markers: Cache<Marker>,
    /// Its uid, once that is known; None if there was no marker.
    found: Arc<OnceLock<Option<String>>>,
}

impl Leftover {
    pub(super) fn of(markers: Cache<Marker>) -> Self {
        let found = Arc::default();
        Self { markers, found }
    }

    /// Remembers the marker of the first list.
    pub(super) fn first_list(&self) {
        let marker = self.markers.get(&marker_key());
        // There is one first list.
        let _ = self.found.set(marker.and_then(|marker| marker.metadata.uid.clone()));
        if let Err(message) = self.check() {
            warn!("{message}");
        }
    }

    /// The readiness check: fails while the marker that was found is there, and nothing is left to be removed.
    pub(super) fn check(&self) -> Result<(), String> {
        let found = self.found.get().and_then(Option::as_ref);
        let marker = self.markers.get(&marker_key());
        let marker = marker.filter(|marker| found.is_some() && marker.metadata.uid.as_ref() == found);
        match marker.map(|marker| Progress::of(&marker)) {
            Some(progress) if progress.is_complete() => Err(progress.remedy()),
            _ => Ok(()),
        }
    }

    /// Shows the message in `CloudSync`, which `writer` must write as the controller of `CloudSync` does: so its first
    /// pass replaces it. Where the kind is not defined, nothing is shown.
    pub(super) async fn show(&self, message: &str, writer: &Writer, clock: &SharedClock) -> Result<(), WriteError> {
        let mut desired = CloudSync::new(CLOUD_SYNC, CloudSyncSpec {});
        let result = async {
            let found: Option<CloudSync> = writer.get(&desired.metadata).await?;
            let before = found
                .as_ref()
                .and_then(|found| found.status.clone())
                .unwrap_or_default();
            let meta: ObjectMeta = match found {
                Some(found) => found.metadata,
                None => writer.apply_new(&desired, |_| true).await?,
            };
            let condition = Condition::new(
                SYNCED,
                ConditionStatus::False,
                TERMINATED,
                message,
                &before.conditions,
                clock.now(),
            );
            let status = CloudSyncStatus {
                conditions: vec![condition.observing(meta.generation)],
                ..CloudSyncStatus::default()
            };
            if status != before {
                desired.status = Some(status);
                writer.apply_status(&desired, &meta).await?;
            }
            Ok::<_, WriteError>(())
        };
        match result.await {
            Err(error) if error.is_conflict() || error.is_gone() => Ok(()),
            result => result,
        }
    }
}
