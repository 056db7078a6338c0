//! A limit for the bytes of large bodies that are in memory at the same time.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The bytes that may be in memory at the same time. Anyone who needs more waits for the others. Clones share it.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    free: Arc<Semaphore>,
    most: u32,
}

/// A part of a [`ByteBudget`]. It is free again when the part is dropped.
#[derive(Debug)]
pub struct BudgetPart {
    _permit: Option<OwnedSemaphorePermit>,
}

impl ByteBudget {
    /// A budget for so many bodies of the largest size.
    #[must_use]
    pub fn new(bodies: u16, largest: u32) -> Self {
        let total = largest as usize * usize::from(bodies);
        Self {
            free: Arc::new(Semaphore::new(total.min(Semaphore::MAX_PERMITS))),
            most: largest,
        }
    }

    /// Waits until so many bytes are free, in the order of the calls. An unknown size counts as the largest.
    pub async fn take(&self, bytes: Option<u64>) -> BudgetPart {
        let bytes = bytes.map_or(self.most, |bytes| {
            u32::try_from(bytes).unwrap_or(self.most).min(self.most)
        });
        // The semaphore is never closed.
        let permit = Arc::clone(&self.free).acquire_many_owned(bytes).await.ok();
        BudgetPart { _permit: permit }
    }

    /// The largest body, in bytes.
    pub(super) fn largest(&self) -> usize {
        self.most as usize
    }
}
