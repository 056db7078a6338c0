//! Which agents follow the status of their own node, as their `NodeReport`s say. Only with them, several workers are upgraded at once.
//!
//! It is a hint: an agent that claims it and does not do it keeps its own node from being upgraded in time, and no other one. So it may be a minute old, and
//! is the only thing that is remembered between two passes. The reports are listed and not watched: they have more than this, and matter only while an
//! upgrade with `maxUnavailable` is in progress.

use std::collections::BTreeSet;
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

/// The names of the nodes with such an agent.
pub(super) type OwnStatus = BTreeSet<String>;

/// A slim report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = NodeReport)]
struct AgentReport {
    #[serde(deserialize_with = "slim::without_labels")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Status {
    #[serde(default)]
    upgrade: Upgrade,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Upgrade {
    #[serde(default)]
    follows_own_status: bool,
}

/// What was read last, and when (monotonic).
#[derive(Debug, Default)]
pub(super) struct Agents {
    read: Mutex<Option<(Duration, OwnStatus)>>,
}

impl Agents {
    /// Reads the reports, unless they were read within a minute.
    ///
    /// # Errors
    /// When the API server does not answer, or does not permit it.
    pub(super) async fn own_status(&self, client: &Client, clock: &dyn Clock) -> kube::Result<OwnStatus> {
        let now = clock.monotonic();
        let known = self.read.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((read, agents)) = known
            && now.saturating_sub(read) < AGE
        {
            return Ok(agents);
        }
        let agents = list_own_status(client).await?;
        *self.read.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, agents.clone()));
        Ok(agents)
    }
}

/// Reads the reports. In a cluster without their definition there are none.
///
/// # Errors
/// When the API server does not answer, or does not permit it.
pub(super) async fn list_own_status(client: &Client) -> kube::Result<OwnStatus> {
    let (all, _) = match list_all(&Api::<Guarded<AgentReport>>::all(client.clone())).await {
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(OwnStatus::new()),
        listed => listed?,
    };
    let follow = all
        .into_iter()
        .filter(|report| report.status.upgrade.follows_own_status);
    Ok(follow.filter_map(|report| report.metadata.name).collect())
}
