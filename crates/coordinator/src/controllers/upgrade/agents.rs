//! What the agents say of their nodes in their `NodeReport`s: whether they follow the status of their own node, without which no several workers are upgraded
//! at once, and why their host would refuse every script.
//!
//! It is a hint: an agent that claims it and does not do it keeps its own node from being upgraded in time, and no other one. So it may be a minute old, and
//! is the only thing that is remembered between two passes. The reports are listed and not watched: they have more than this, and matter only when an upgrade
//! begins, and while one with `maxUnavailable` is in progress.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use kube::api::{Api, ObjectMeta};
use kube::{Client, Resource};
use serde::{Deserialize, Serialize};
use tidewaiter_api::NodeReport;
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::{Clock, Guarded, slim};

/// How old what was read may be.
const AGE: Duration = Duration::from_mins(1);

/// What the agents say, by node. One that is missing says nothing.
pub(super) type AgentReports = BTreeMap<String, Agent>;

const DISABLED: &str = "its agent has upgrades disabled (agent.settings.upgrades)";

/// A slim report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = NodeReport)]
struct SlimReport {
    #[serde(deserialize_with = "slim::without_labels")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Status {
    #[serde(default)]
    upgrade: Option<Agent>,
}

/// What an agent says of upgrades on its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Agent {
    /// Whether it follows the status of its own node.
    #[serde(default)]
    pub(super) follows_own_status: bool,
    /// Why its host would refuse every script. Empty if it would not.
    #[serde(default)]
    pub(super) host_problem: String,
}

/// What was read last, and when (monotonic).
#[derive(Debug, Default)]
pub(super) struct Agents {
    read: Mutex<Option<(Duration, AgentReports)>>,
}

impl Agents {
    /// Reads the reports, unless they were read within a minute.
    ///
    /// # Errors
    /// When the API server does not answer, or does not permit it.
    pub(super) async fn reports(&self, client: &Client, clock: &dyn Clock) -> kube::Result<AgentReports> {
        let now = clock.monotonic();
        let known = self.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((read, agents)) = known
            && now.saturating_sub(read) < AGE
        {
            return Ok(agents);
        }
        let agents = list_reports(client).await?;
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, agents.clone()));
        Ok(agents)
    }
}

/// Reads the reports. In a cluster without their definition there are none.
///
/// # Errors
/// When the API server does not answer, or does not permit it.
pub(super) async fn list_reports(client: &Client) -> kube::Result<AgentReports> {
    let (all, _) = match list_all(&Api::<Guarded<SlimReport>>::all(client.clone())).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(AgentReports::new()),
        listed => listed?,
    };
    let disabled = || Agent {
        host_problem: DISABLED.to_owned(),
        ..Agent::default()
    };
    let said = all.into_iter().filter_map(|report| {
        let agent = report.status.upgrade.unwrap_or_else(disabled);
        Some((report.metadata.name?, agent))
    });
    Ok(said.collect())
}
