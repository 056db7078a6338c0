//! The cloud's record of deletions for a kind. By it, a list that lacks an object is distinguished from one that is
//! wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use tidewaiter_api::names::{CONTAINERSHIP_NAMESPACE, cloud_list_secret};
use tidewaiter_kit::client::{Clients, DEFAULT_IN_FLIGHT};
use tidewaiter_kit::{Chain, SharedClock, WriteError, Writer};
use tracing::warn;

use super::stored::list_secret;

/// The record, as it was read after the last list: so it names each deletion that the list shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Record {
    /// The cloud has none: it is older than the record.
    Absent,
    /// It could not be read.
    Unread,
    /// It names these objects, by the names of their resources.
    Names(BTreeSet<String>),
}

impl Record {
    /// Returns true if it names the object.
    pub(super) fn names(&self, name: &str) -> bool {
        matches!(self, Self::Names(names) if names.contains(name))
    }

    /// Returns true if the cloud has a record that does not name the object, as far as it could be read.
    pub(crate) fn lacks(&self, name: &str) -> bool {
        match self {
            Self::Absent => false,
            Self::Unread => true,
            Self::Names(names) => !names.contains(name),
        }
    }
}

/// True once the cloud has answered with a record. It is remembered, also over restarts in a Secret beside the stored
/// lists: a cloud that had a record and answers 404 is wrong, and not older than the record. Clones share it.
#[derive(Clone)]
pub(crate) struct HasRecord(Arc<Remembered>);

struct Remembered {
    secrets: Api<Secret>,
    writer: Writer,
    is_known: AtomicBool,
    is_stored: AtomicBool,
}

impl HasRecord {
    /// The name in place of that of a kind.
    const NAME: &'static str = "deletions";

    pub(crate) fn new(clients: &Clients, clock: &SharedClock) -> Self {
        let client = clients.for_controller("sync-deletions", DEFAULT_IN_FLIGHT);
        Self(Arc::new(Remembered {
            secrets: Api::namespaced(client.clone(), CONTAINERSHIP_NAMESPACE),
            writer: Writer::new(client, "sync-deletions", Arc::clone(clock)),
            is_known: AtomicBool::new(false),
            is_stored: AtomicBool::new(false),
        }))
    }

    /// The cloud answered with its record. What cannot be stored now is stored after the next answer.
    pub(crate) async fn remember(&self) {
        self.0.is_known.store(true, Ordering::Relaxed);
        if self.0.is_stored.load(Ordering::Relaxed) {
            return;
        }
        match self.0.store().await {
            Ok(()) => self.0.is_stored.store(true, Ordering::Relaxed),
            Err(error) => {
                let error = Chain(&error).to_string();
                warn!(
                    error,
                    "that the cloud has a record of deletions cannot be stored; it is tried again"
                );
            }
        }
    }

    /// Returns true if the cloud is not known to have a record. While what is stored cannot be read, it counts as
    /// known.
    pub(crate) async fn is_unknown(&self) -> bool {
        if self.0.is_known.load(Ordering::Relaxed) {
            return false;
        }
        let is_known = !matches!(self.0.secrets.get_metadata_opt(&name()).await, Ok(None));
        // Each request asks again: until the cloud has answered once, there are few.
        !is_known
    }

    /// The Secret was deleted, with everything of the coordinator.
    pub(crate) fn forget(&self) {
        self.0.is_known.store(false, Ordering::Relaxed);
        self.0.is_stored.store(false, Ordering::Relaxed);
    }
}

impl Remembered {
    async fn store(&self) -> Result<(), WriteError> {
        if matches!(self.secrets.get_metadata_opt(&name()).await, Ok(Some(_))) {
            return Ok(());
        }
        let secret = list_secret(HasRecord::NAME, 0, None);
        self.writer.apply(&secret, None).await.map(drop)
    }
}

fn name() -> String {
    cloud_list_secret(HasRecord::NAME, 0)
}
