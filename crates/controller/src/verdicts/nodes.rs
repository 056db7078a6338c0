//! The Nodes as they are judged, kept by the changes of the NodeController's cache: to unpack all of them again for each verdict
//! takes longer than to judge them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidewaiter_kit::{Cache, Change};
use tidewaiter_validation::Node as Judged;

use crate::node_controller::Node;

/// By name.
#[derive(Debug, Default)]
pub(super) struct Nodes(Mutex<HashMap<Box<str>, Arc<Judged>>>);

impl Nodes {
    /// A Node has come, changed or gone.
    pub(super) fn changed(&self, change: &Change<Node>) {
        let node = change.object();
        let name = node.metadata.name.as_deref().unwrap_or_default();
        match change {
            Change::Applied(_) => drop(self.held().insert(name.into(), Arc::new(node.judged()))),
            Change::Deleted(_) => drop(self.held().remove(name)),
        }
    }

    /// All that are in the cache. It shows its first list before it tells of it: then they are read from there.
    pub(super) fn all(&self, cache: &Cache<Node>) -> Vec<Arc<Judged>> {
        let nodes: Vec<_> = self.held().values().cloned().collect();
        if nodes.len() == cache.len() {
            return nodes;
        }
        cache.all().map(|node| Arc::new(node.judged())).collect()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Box<str>, Arc<Judged>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
