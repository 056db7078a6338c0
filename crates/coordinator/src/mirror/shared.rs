//! What the loop that asks the cloud, and the controller that writes the objects of the cluster, know of a kind: the
//! last complete list.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::cloud_list::{CloudList, Specs};
use super::kind::MirroredKind;
use super::listing::Listing;

/// What the loop that asks the cloud and the controller share.
pub(super) struct Shared<K: MirroredKind> {
    pub(super) kind: K,
    /// What the cloud lists, as other controllers see it.
    pub(super) list: CloudList<K::Resource>,
    known: Mutex<Option<Known<K::Resource>>>,
}

/// The last complete list.
struct Known<R> {
    listing: Arc<Listing<R>>,
    /// When the cloud sent it last, on the monotonic clock. None if an earlier process stored it.
    confirmed: Option<Duration>,
}

impl<K: MirroredKind> Shared<K> {
    pub(super) fn new(kind: K) -> Self {
        Self {
            kind,
            list: CloudList::new(K::CONTROLLER),
            known: Mutex::default(),
        }
    }

    /// A complete response.
    pub(super) fn set(&self, listing: Listing<K::Resource>, confirmed: Duration) {
        *self.lock() = Some(Known {
            listing: Arc::new(listing),
            confirmed: Some(confirmed),
        });
    }

    /// What an earlier process stored, if it did. A response of the cloud that came earlier stays.
    pub(super) fn recall(&self, stored: Option<Arc<Specs<K::Resource>>>) {
        if let Some(list) = &stored {
            self.lock().get_or_insert_with(|| Known {
                listing: Arc::new(Listing::stored(list)),
                confirmed: None,
            });
        }
        self.list.recall(stored);
    }

    /// The last complete response is still what the cloud says.
    pub(super) fn confirm(&self, at: Duration) {
        if let Some(known) = &mut *self.lock() {
            known.confirmed = Some(at);
        }
    }

    /// The last complete list, and when the cloud sent it last; None if an earlier process stored it.
    pub(super) fn known(&self) -> Option<(Arc<Listing<K::Resource>>, Option<Duration>)> {
        let known = self.lock();
        known
            .as_ref()
            .map(|known| (Arc::clone(&known.listing), known.confirmed))
    }

    /// Whether it is the last complete response.
    pub(super) fn is_last(&self, listing: &Arc<Listing<K::Resource>>) -> bool {
        let known = self.lock();
        known.as_ref().is_some_and(|known| Arc::ptr_eq(&known.listing, listing))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Known<K::Resource>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
