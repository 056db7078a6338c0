//! The upgrades as the cloud shows them, for the reports of their progress.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tidewaiter_api::containership::ClusterUpgrade;
use tidewaiter_cloud::models::values::UpgradeId;
use tidewaiter_cloud::models::{UpgradeProgress, UpgradeStatus};
use tidewaiter_kit::Cache;
use tokio::sync::Notify;

/// The upgrades as the cloud shows them: as it last listed them, with what was sent since. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShownUpgrades(Arc<Shown>);

#[derive(Debug, Default)]
struct Shown {
    upgrades: Mutex<Upgrades>,
    /// Something may have to be reported.
    asked: Notify,
}

type Upgrades = BTreeMap<UpgradeId, Option<UpgradeProgress>>;

/// The upgrades of the cloud, in the cluster and as the cloud shows them.
#[derive(Clone, Debug)]
pub(crate) struct MirroredUpgrades {
    /// The upgrades as the cloud shows them.
    pub(crate) shown: ShownUpgrades,
    /// All upgrades in the cluster.
    pub(crate) upgrades: Cache<ClusterUpgrade>,
}

impl ShownUpgrades {
    /// A complete list.
    pub(super) fn set(&self, upgrades: Upgrades) {
        *self.0.upgrades.lock() = upgrades;
        self.ask();
    }

    /// The cloud shows this of an upgrade now.
    pub(crate) fn sent(&self, id: UpgradeId, progress: UpgradeProgress) {
        if let Some(shown) = self.0.upgrades.lock().get_mut(&id) {
            *shown = Some(progress);
        }
    }

    /// Returns true if the cloud shows that the upgrade has ended.
    pub(super) fn is_over(&self, id: UpgradeId) -> bool {
        let upgrades = self.0.upgrades.lock();
        let shown = upgrades.get(&id).and_then(|shown| shown.as_ref()?.cluster_status);
        matches!(shown, Some(UpgradeStatus::Success | UpgradeStatus::Failed))
    }

    /// Returns true if the cloud lists the upgrade.
    pub(super) fn lists(&self, id: UpgradeId) -> bool {
        self.0.upgrades.lock().contains_key(&id)
    }

    /// The state of each.
    pub(crate) fn all(&self) -> Upgrades {
        self.0.upgrades.lock().clone()
    }

    /// Something may have to be reported.
    pub(crate) fn ask(&self) {
        self.0.asked.notify_one();
    }

    /// Completes when something may have to be reported. For the one loop that reports.
    pub(crate) async fn asked(&self) {
        self.0.asked.notified().await;
    }
}
