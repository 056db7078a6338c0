//! Notices that the storage of the API server went back in time: it was restored from a backup, or is empty.
//!
//! Nothing fails then. The API server serves a watch from a resourceVersion that it has not reached again, and sends
//! nothing until it does. So all caches of this process go on showing what was lost, and what happens meanwhile is
//! missed. The Lease shows it: each write gives it a newer version, and a read of one object comes from the storage,
//! which never returns an older version than before.

use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::coordination::v1::Lease;
use tokio::sync::SetOnce;

/// The versions of the Lease in the responses to reads and writes. A watch may be behind, so its events do not count.
#[derive(Debug, Default)]
pub(super) struct Versions {
    newest: AtomicU64,
    rewind: SetOnce<Rewind>,
}

/// An older version than one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rewind {
    pub(super) version: u64,
    pub(super) newest: u64,
}

impl Versions {
    /// Takes note of the Lease in a response. The requests must follow each other.
    pub(super) fn see(&self, lease: &Lease) {
        let version = lease.metadata.resource_version.as_deref();
        let Some(version) = version.and_then(|version| version.parse().ok()) else {
            return;
        };
        let newest = self.newest.fetch_max(version, Ordering::SeqCst);
        if version < newest {
            // The first one is enough.
            let _ = self.rewind.set(Rewind { version, newest });
        }
    }

    /// Completes when a response was older than one before.
    pub(super) async fn rewound(&self) -> Rewind {
        *self.rewind.wait().await
    }
}
