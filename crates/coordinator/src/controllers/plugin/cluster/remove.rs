//! The removal of a plugin, also of all plugins when everything is to be removed.

use std::collections::BTreeMap;

use kube::Client;
use tidewaiter_api::PluginInventory;

use super::claim::Claimant;
use super::observe::Seen;
use super::plan::{End, Waits, plan};
use super::{Cluster, Clusters, Place};
use crate::controllers::plugin::desired::{ObjectId, Record, Release};
use crate::controllers::plugin::report::{DENIED, PluginError, Problem, log_left};
use crate::controllers::plugin::settings::{ByPlugin, PluginAccount, PluginDrift};

/// The rounds of observing and deleting in one removal, besides one for each object: each may have a phase of its own.
const ROUNDS: usize = 8;

/// The result of a removal.
#[derive(Default)]
pub(crate) struct Removed {
    /// Objects that were deleted.
    pub(crate) objects: u64,
    /// The condition that it waits for. Without it and without problems, nothing is left.
    pub(crate) waits: Option<Waits>,
    /// Objects that cannot be removed, and why. Everything else is.
    pub(crate) problems: Vec<Problem>,
    /// Namespaces and definitions that stay, and what is in them.
    pub(crate) kept: Vec<(ObjectId, String)>,
    /// Objects that stay because somebody took their label off.
    pub(crate) left: Vec<ObjectId>,
    pub(crate) places: Vec<Place>,
}

impl Removed {
    /// Returns true if nothing is left.
    pub(crate) fn is_complete(&self) -> bool {
        self.waits.is_none() && self.problems.is_empty()
    }
}

/// Removes plugins without a controller, each as its service account.
pub(crate) struct PluginRemoval(Clusters);

impl PluginRemoval {
    /// `client` must be a fenced one.
    pub(crate) fn new(client: &Client, accounts: ByPlugin<PluginAccount>) -> Self {
        Self(Clusters::new(client, accounts))
    }

    /// Deletes the objects of the inventory, as far as nothing has to be waited for. The inventory stays.
    pub(crate) async fn remove(&self, inventory: &PluginInventory) -> Result<Removed, PluginError> {
        let cluster = self.0.of(&Record::read(&inventory.spec).identity(inventory));
        let removed = cluster?.remove(inventory).await?;
        if removed.is_complete() {
            log_left(inventory.metadata.name.as_deref().unwrap_or_default(), &removed.left);
        }
        Ok(removed)
    }
}

impl Cluster {
    /// Deletes the objects of the inventory, as far as nothing has to be waited for.
    pub(crate) async fn remove(&self, inventory: &PluginInventory) -> Result<Removed, PluginError> {
        let plugin = inventory.metadata.name.as_deref().unwrap_or_default();
        let (release, mut record) = (Release::default(), Record::read(&inventory.spec));
        let (mut removed, mut denied) = (Removed::default(), BTreeMap::new());
        for _ in 0..ROUNDS + record.len() {
            let claimant = Claimant {
                plugin,
                record: &record,
                is_gone: &|_| false,
            };
            let (mut observed, places) = self.observe(&release, claimant).await.map_err(PluginError::Read)?;
            removed.places = places;
            // One that the account may not delete is as one that it may not read: it keeps no other. One whose deletion
            // a webhook or a policy refuses keeps what comes after it.
            observed.seen.extend(denied.clone());
            let plan = plan(&release, &record, &observed, PluginDrift::Correct);
            record = plan.record;
            removed.left.extend(plan.left);
            if plan.actions.is_empty() {
                match plan.end {
                    End::Waits(waits) => removed.waits = Some(waits),
                    End::Problems(problems) => removed.problems = problems,
                    End::Done | End::JobFailed(_) => {}
                }
                return Ok(removed);
            }
            removed.objects += plan.actions.iter().flatten().count() as u64;
            let performed = self.perform(plugin, plan.actions, &mut record).await;
            removed.objects -= performed.failed.len() as u64;
            removed.kept.extend(performed.kept);
            for (id, problem) in performed.failed {
                if problem.reason == DENIED {
                    denied.insert(id, Seen::Unreadable(problem));
                } else {
                    removed.problems.push(problem);
                }
            }
            if !removed.problems.is_empty() {
                return Ok(removed);
            }
        }
        removed.waits = Some(Waits::new(
            "Removal",
            "its objects are created again and again by somebody else",
        ));
        Ok(removed)
    }
}
