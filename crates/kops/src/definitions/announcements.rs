//! Changes that were observed and not announced yet: each once, no matter how often it was observed, and none lost.

use std::collections::BTreeSet;
use std::mem::take;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::Changed;

/// The pending announcements.
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
