//! One pass over one key, as the reconciler sees it.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::key::Key;

/// One pass. It holds one of its controller's slots, except in [`Pass::outside`].
#[derive(Debug)]
pub struct Pass {
    key: Key,
    about: Option<Box<ObjectReference>>,
    slots: Arc<Semaphore>,
    slot: Option<OwnedSemaphorePermit>,
}

impl Pass {
    pub(super) fn new(key: Key, slots: Arc<Semaphore>, slot: OwnedSemaphorePermit) -> Self {
        Self {
            key,
            about: None,
            slots,
            slot: Some(slot),
        }
    }

    /// A pass outside a controller, for tests.
    #[cfg(any(test, feature = "test-util"))]
    #[must_use]
    pub fn by_hand(key: Key) -> Self {
        Self {
            key,
            about: None,
            slots: Arc::new(Semaphore::new(1)),
            slot: None,
        }
    }

    /// The key to reconcile.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Sets the object of the pass, on which an error's notice is published. The reference names the uid, so an
    /// object that is created again under the name meanwhile does not get the Event.
    pub fn about(&mut self, object: ObjectReference) {
        self.about = Some(Box::new(object));
    }

    pub(super) fn object(&self) -> Option<&ObjectReference> {
        self.about.as_deref()
    }

    /// Waits for something outside the process without a slot: thousands of passes may wait together for one response
    /// from the cloud. What was read from a cache before it may be stale after it.
    pub async fn outside<T>(&mut self, waiting: impl Future<Output = T>) -> T {
        self.slot = None;
        let output = waiting.await;
        // Closed never: the controller owns the semaphore.
        self.slot = Arc::clone(&self.slots).acquire_owned().await.ok();
        output
    }
}
