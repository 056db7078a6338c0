//! The Nodes that are refused for forgery, as the records tell it: followed on every replica, leader or not.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tidewaiter_identity::Refusal;
use tidewaiter_kit::Change;
use tokio::sync::Notify;

use super::record::Record;

/// Their names.
#[derive(Debug)]
pub struct Forged {
    names: Mutex<BTreeSet<String>>,
    changed: Arc<Notify>,
}

impl Forged {
    /// Nobody is, so far; `changed` hears of each that comes or goes.
    #[must_use]
    pub fn new(changed: Arc<Notify>) -> Self {
        Self {
            names: Mutex::default(),
            changed,
        }
    }

    /// All of them.
    #[must_use]
    pub fn names(&self) -> BTreeSet<String> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A record has come, changed or gone.
    pub(super) fn changed(&self, change: &Change<Record>) {
        let record = change.object();
        let name = record.metadata.name.as_deref().unwrap_or_default();
        let forged = matches!(change, Change::Applied(_)) && Refusal::recorded_forgery(&record.status);
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let other = if forged {
            names.insert(name.to_owned())
        } else {
            names.remove(name)
        };
        drop(names);
        if other {
            self.changed.notify_one();
        }
    }
}
