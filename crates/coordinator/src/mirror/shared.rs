//! The state of a kind that the cloud's loop and the controller of the cluster's objects share: the last complete list.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidewaiter_kit::{Cache, Key};
use tokio::sync::Notify;

use super::cloud_list::{CloudList, Specs};
use super::held::NAMED;
use super::kind::{MirroredKind, with_name};
use super::listing::Listing;
use super::plan::Hold;
use super::record::Record;

/// The state that the cloud's loop and the controller share.
pub(super) struct Shared<K: MirroredKind> {
    pub(super) kind: K,
    /// The cloud's list, for other controllers.
    pub(super) list: CloudList<K::Resource>,
    /// Notified when the last response deletes something, or something of it is held: the next one may differ.
    pub(super) doubted: Notify,
    known: Mutex<Option<Known<K::Resource>>>,
}

/// The last complete list.
#[derive(Clone)]
pub(super) struct Known<R> {
    pub(super) listing: Arc<Listing<R>>,
    /// The time when the cloud sent it last, on the monotonic clock. None if an earlier process stored it.
    pub(super) confirmed: Option<Duration>,
    /// The cloud's record of deletions; read only if the list lacks objects.
    pub(super) record: Arc<Record>,
    /// The number of the change up to which it was current when it last changed, or was said to change, if the cloud
    /// says it.
    pub(super) change: Option<u64>,
}

impl<K: MirroredKind> Shared<K> {
    pub(super) fn new(kind: K) -> Self {
        Self {
            kind,
            list: CloudList::new(K::CONTROLLER),
            doubted: Notify::new(),
            known: Mutex::default(),
        }
    }

    /// The display names of the first objects that are held: as the cloud lists them, or listed them last, because
    /// somebody may have edited their copies.
    pub(super) fn names(
        &self,
        hold: &Hold,
        listing: &Listing<K::Resource>,
        copies: &Cache<K::Resource>,
    ) -> Vec<String> {
        let before = self.list.listed();
        let listed = |key: &Key| Some(Arc::clone(before.get(key.name())?.as_ref()?));
        let called = |key: &Key| {
            if let Some(object) = listing.desired.get(key) {
                return self.kind.called(object);
            }
            let known = listed(key).or_else(|| copies.get(key));
            known.map_or_else(String::new, |object| self.kind.called(&object))
        };
        let first = hold.keys().take(NAMED);
        first
            .map(|key| with_name(&called(key), K::CALLED, key.name()))
            .collect()
    }

    /// Stores a complete response.
    pub(super) fn set(&self, known: Known<K::Resource>) {
        *self.known.lock() = Some(known);
    }

    /// Restores the list that an earlier process stored, if it did. A response of the cloud that came earlier stays.
    pub(super) fn recall(&self, stored: Option<Arc<Specs<K::Resource>>>) {
        if let Some(list) = &stored {
            self.known.lock().get_or_insert_with(|| Known {
                listing: Arc::new(Listing::stored(list)),
                confirmed: None,
                record: Arc::new(Record::Unread),
                change: None,
            });
        }
        self.list.recall(stored);
    }

    /// The last complete list.
    pub(super) fn known(&self) -> Option<Known<K::Resource>> {
        self.known.lock().clone()
    }

    /// Returns true if it is the last complete response.
    pub(super) fn is_last(&self, listing: &Arc<Listing<K::Resource>>) -> bool {
        let known = self.known.lock();
        known.as_ref().is_some_and(|known| Arc::ptr_eq(&known.listing, listing))
    }
}
