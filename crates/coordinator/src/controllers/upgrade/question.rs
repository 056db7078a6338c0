//! The live reads of a pass, which no cache answers.

use tidewaiter_api::NodeName;
use tidewaiter_api::containership::{ClusterUpgrade, UpgradeStatus};
use tidewaiter_upgrade::{Health, Version, form};

use super::agents::AgentReports;
use super::drain::NodePods;
use super::error::UpgradeError;

/// The live reads of a pass.
#[derive(Debug, PartialEq, Eq)]
pub struct Question {
    /// True if the upgrade requires the cluster to be healthy.
    pub(super) health: bool,
    /// The nodes whose pods must leave.
    pub(super) drained: Vec<NodeName>,
    /// The nodes in progress, whose hosts say what became of the script.
    pub in_progress: Vec<NodeName>,
    /// The uid of the upgrade.
    pub(super) upgrade: String,
    /// True if the reports of all agents are needed: several workers may be upgraded at once; or nothing was started,
    /// and an object of the same upgrade that is gone may have started something.
    pub all: bool,
}

pub(super) struct Answer {
    pub(super) api_server: Version,
    pub(super) health: Health,
    pub(super) pods: NodePods,
    pub(super) agents: AgentReports,
    /// The reason why one of these cannot be read.
    pub(super) unread: Option<UpgradeError>,
}

impl Question {
    /// The reads for this upgrade.
    #[must_use]
    pub fn about(object: &ClusterUpgrade) -> Self {
        let progress = form::progress(object.spec.status.as_ref());
        let drained = progress
            .cordons
            .keys()
            .filter(|node| !progress.nodes.contains_key(*node));
        let policy = object.spec.policy.as_ref();
        let several = policy.is_some_and(|policy| policy.max_unavailable.is_some());
        Self {
            health: requires_health(object),
            drained: drained.cloned().collect(),
            in_progress: progress.in_progress().map(|(name, _)| name.clone()).collect(),
            upgrade: object.metadata.uid.clone().unwrap_or_default(),
            all: progress.cluster == UpgradeStatus::InProgress && (progress.nodes.is_empty() || several),
        }
    }
}

/// Returns true if the upgrade waits for the cluster to be healthy.
#[must_use]
pub fn requires_health(object: &ClusterUpgrade) -> bool {
    let policy = object.spec.policy.as_ref();
    policy.is_some_and(|policy| policy.require_healthy || policy.canary.is_some())
}
