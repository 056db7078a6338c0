//! The watches that are open through the proxy, and how they end.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

#[derive(Debug, Default)]
pub(super) struct Watches(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    number: u64,
    open: HashMap<u64, Watch>,
    /// Paths whose next watch ends with 410 Gone.
    expired: HashSet<String>,
}

#[derive(Debug)]
struct Watch {
    path: String,
    end: CancellationToken,
}

impl Watches {
    pub(super) fn open(&self) -> Vec<String> {
        self.0.lock().open.values().map(|watch| watch.path.clone()).collect()
    }

    pub(super) fn cut(&self) {
        self.0.lock().open.values().for_each(|watch| watch.end.cancel());
    }

    pub(super) fn expire(&self) {
        let mut state = self.0.lock();
        let State { open, expired, .. } = &mut *state;
        for watch in open.values() {
            expired.insert(watch.path.clone());
            watch.end.cancel();
        }
    }

    /// Returns true if this watch is to end with 410 Gone; true once.
    pub(super) fn take_expired(&self, path: &str) -> bool {
        self.0.lock().expired.remove(path)
    }

    /// Enters a watch; it counts as open until the guard is dropped.
    pub(super) fn enter(self: &Arc<Self>, path: &str) -> OpenWatch {
        let end = CancellationToken::new();
        let mut state = self.0.lock();
        state.number += 1;
        let number = state.number;
        state.open.insert(
            number,
            Watch {
                path: path.to_owned(),
                end: end.clone(),
            },
        );
        OpenWatch {
            watches: Arc::clone(self),
            number,
            end,
        }
    }
}

pub(super) struct OpenWatch {
    watches: Arc<Watches>,
    number: u64,
    /// Cancelled when the watch is to end.
    pub(super) end: CancellationToken,
}

impl Drop for OpenWatch {
    fn drop(&mut self) {
        self.watches.0.lock().open.remove(&self.number);
    }
}
