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
        let forged = matches!(change, Change::Applied(_)) && Refusal::is_recorded_forgery(&record.status);
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

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;
    use serde_json::json;

    use super::*;

    fn record(status: &str, reason: &str) -> Record {
        let condition = json!({"type": "Verified", "status": status, "reason": reason, "message": "m",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let record =
            json!({"metadata": {"name": "n"}, "spec": {"nodeUID": "u"}, "status": {"conditions": [condition]}});
        serde_json::from_value(record).unwrap()
    }

    #[test]
    fn a_name_stands_for_as_long_as_its_record_says_so_and_each_change_is_told() {
        let notify = Arc::new(Notify::new());
        let forged = Forged::new(Arc::clone(&notify));
        let lies = || record("False", "NameMismatch");
        for (change, stands, told) in [
            (Change::Applied(record("False", "NotInGroup")), false, false),
            (Change::Applied(lies()), true, true),
            (Change::Applied(lies()), true, false),
            (Change::Applied(record("True", "Proven")), false, true),
            (Change::Applied(lies()), true, true),
            (Change::Deleted(lies()), false, true),
        ] {
            forged.changed(&change);
            assert_eq!(forged.names().contains("n"), stands, "{change:?}");
            assert_eq!(notify.notified().now_or_never().is_some(), told, "{change:?}");
        }
    }
}
