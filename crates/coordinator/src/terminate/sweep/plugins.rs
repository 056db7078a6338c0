//! Removes the plugins: the objects of each, and then the inventory that names them.

use kube::Api;
use kube::api::ListParams;
use tidewaiter_api::PluginInventory;
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;

use super::{Count, Failure, Row, SweepError, Terminator, list, outcome};
use crate::controllers::PluginError;

impl Terminator {
    /// A plugin that cannot be removed keeps no other.
    pub(in crate::terminate) async fn remove_plugins(&self, row: &Row) -> Result<Count, SweepError> {
        let (mut count, mut first, mut failed) = (Count::default(), None, Vec::new());
        let api = Api::<PluginInventory>::namespaced(self.client(), CONTAINERSHIP_NAMESPACE);
        for inventory in list(row, api.list(&ListParams::default()).await)?.items {
            if !self.is_requested() {
                break;
            }
            let removed = match self.plugins.remove(&inventory).await {
                Ok(removed) => removed,
                Err(error) => {
                    first = first.or(Some(error));
                    continue;
                }
            };
            count.removed += removed.objects;
            self.add(row.name, removed.objects);
            if removed.is_complete() {
                let removal = std::iter::once(self.remove_one::<PluginInventory>(row.ours, inventory.metadata));
                count.removed += self.finish(row, removal, &mut failed).await?;
            } else if removed.problems.is_empty() {
                count.waiting += 1;
            } else {
                first = first.or(Some(PluginError::Problems(removed.problems)));
            }
        }
        match first {
            None => outcome(row, count, failed),
            Some(error) => Err(SweepError {
                row: row.name,
                failed: Box::new(Failure::Plugin(error)),
            }),
        }
    }
}
