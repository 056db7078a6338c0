//! Reports of the progress of upgrades: the cloud shows of each of its upgrades what the cluster says of it.
//!
//! A loop of its own sends them, so no upgrade waits for the cloud. It sends what differs from what the cloud shows,
//! and then rests for [`PAUSE`]: what happens meanwhile is one report. What the cloud shows is in the list that the
//! mirror asks for anyway, so at rest no request is sent, and a status that somebody overwrote is sent again. While the
//! cloud is away, the loop retries at the pace of all loops ([`Retries`]), and then sends the last state alone.
//!
//! An upgrade that a person created in the cluster is not the cloud's, whatever its `spec.id` is, and is not reported.

use std::collections::BTreeMap;
use std::time::Duration;

use tidewaiter_api::NodeName;
use tidewaiter_api::containership::cluster_upgrade::{PROGRESSING, SUCCEEDED};
use tidewaiter_api::containership::{ClusterUpgrade, ClusterUpgradeStatus, UpgradeStatus as Stored};
use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
use tidewaiter_cloud::client::{ClientError, Method, Request};
use tidewaiter_cloud::models::values::{Description, UnixDate, UpgradeId};
use tidewaiter_cloud::models::{UpgradeProgress, UpgradeStatus};
use tidewaiter_kit::role::Role;
use tidewaiter_kit::{ControllerContext, Key, Trigger};
use tracing::{info, warn};

use crate::cloud::Cloud;
use crate::explained::explained;
use crate::loops;
use crate::mirror::{MirroredUpgrades, is_of_cloud};
use crate::retries::Retries;

/// The rest after a report.
const PAUSE: Duration = Duration::from_secs(5);

/// The controller writes the progress and then the conditions: both are one report.
const SETTLE: Duration = Duration::from_millis(250);

/// The longest message, in characters, as the cloud accepts it.
const MESSAGE: usize = 1024;

/// The upgrades of which the cluster says something else than the cloud shows.
fn differing(mirrored: &MirroredUpgrades) -> Vec<(UpgradeId, UpgradeProgress)> {
    let differs = |(id, shown): (UpgradeId, Option<UpgradeProgress>)| {
        let key = Key::namespaced(CONTAINERSHIP_NAMESPACE, &id.to_string());
        let object = mirrored.upgrades.get(&key).filter(|object| is_of_cloud(object))?;
        let progress = report(&object).filter(|progress| shown.as_ref() != Some(progress))?;
        Some((id, progress))
    };
    mirrored.shown.all().into_iter().filter_map(differs).collect()
}

/// Starts the loop.
pub(crate) fn start(cloud: &Cloud, mirrored: MirroredUpgrades, role: &mut Role<'_>) {
    let asked = mirrored.shown.clone();
    mirrored.upgrades.notify(Trigger::calls(move |_| asked.ask()));
    let reports = UpgradeReports {
        cloud: cloud.clone(),
        mirrored,
        rejected: BTreeMap::new(),
        is_failing: false,
    };
    loops::run(role.tasks, "reports/upgrades", reports.run(role.context.clone()));
}

struct UpgradeReports {
    cloud: Cloud,
    mirrored: MirroredUpgrades,
    /// Reports that the cloud does not accept, which are not sent again.
    rejected: BTreeMap<UpgradeId, UpgradeProgress>,
    /// True if it was logged that reports fail.
    is_failing: bool,
}

impl UpgradeReports {
    async fn run(mut self, context: ControllerContext) {
        let clock = context.kit.clock.clone();
        context.leadership.acquired().await;
        let mut retries = Retries::new(&self.cloud.client, self.cloud.interval, clock.clone());
        loop {
            self.mirrored.shown.asked().await;
            clock.sleep(SETTLE).await;
            loop {
                context.pause.until(false).await;
                retries.begin();
                match self.report().await {
                    Ok(()) => break retries.succeeded(),
                    Err(asked) => retries.failed(asked).await,
                }
            }
            clock.sleep(PAUSE).await;
        }
    }

    /// Sends what differs. Fails with the pause that the cloud requires.
    async fn report(&mut self) -> Result<(), Duration> {
        for (id, progress) in differing(&self.mirrored) {
            if self.rejected.get(&id) == Some(&progress) {
                continue;
            }
            match self.send(id, &progress).await {
                Ok(()) => self.mirrored.shown.sent(id, progress),
                // Deleted in the cloud: the next list does not have it.
                Err(ClientError::NotOurs { .. }) => {}
                Err(error @ ClientError::Rejected { .. }) => {
                    let error = explained(&error, &self.cloud.client);
                    warn!(upgrade = %id, error, "the cloud does not accept the progress of an upgrade");
                    self.rejected.insert(id, progress);
                }
                Err(error) => {
                    if !std::mem::replace(&mut self.is_failing, true) {
                        let error = explained(&error, &self.cloud.client);
                        warn!(error, "the progress of upgrades cannot be reported to the cloud");
                    }
                    return Err(error.retry_after().unwrap_or_default());
                }
            }
            if std::mem::take(&mut self.is_failing) {
                info!("the progress of upgrades can be reported again");
            }
        }
        Ok(())
    }

    /// Sends one request, without a retry of its own.
    async fn send(&self, id: UpgradeId, progress: &UpgradeProgress) -> Result<(), ClientError> {
        let path = self.cloud.cluster.upgrade_status(id);
        let mut request = Request::new(Method::PUT, path).json(serde_json::json!({ "status": progress }));
        request.once = true;
        self.cloud.client.request(&request).await.map(drop)
    }
}

/// The report on an upgrade; None before anything was decided about it. Pure.
fn report(object: &ClusterUpgrade) -> Option<UpgradeProgress> {
    let counted = object.status.as_ref().filter(|status| !status.conditions.is_empty());
    let stored = object.spec.status.clone().unwrap_or_default();
    if counted.is_none() && object.spec.status.is_none() {
        return None;
    }
    let cluster_status = status(stored.cluster_status);
    let is_over = matches!(cluster_status, Some(UpgradeStatus::Success | UpgradeStatus::Failed));
    let nodes = stored.node_statuses.iter();
    let nodes = nodes.filter_map(|(name, node)| Some((name.parse::<NodeName>().ok()?, status(*node)?)));
    let current_node: Option<NodeName> = stored.current_node.parse().ok();
    Some(UpgradeProgress {
        cluster_status,
        node_statuses: nodes.collect(),
        current_start_time: current_node
            .as_ref()
            .and_then(|_| UnixDate::parse(&stored.current_start_time)),
        current_node,
        nodes: counted.and_then(|status| status.nodes),
        done: counted.and_then(|status| status.done),
        failed: counted.and_then(|status| status.failed),
        message: counted.and_then(|status| message(status, is_over)),
    })
}

fn status(stored: Stored) -> Option<UpgradeStatus> {
    match stored {
        Stored::NotStarted => None,
        Stored::InProgress => Some(UpgradeStatus::InProgress),
        Stored::Success => Some(UpgradeStatus::Success),
        Stored::Failed => Some(UpgradeStatus::Failed),
    }
}

/// The condition that the upgrade waits for, or its end, as far as the cloud accepts it.
fn message(status: &ClusterUpgradeStatus, is_over: bool) -> Option<Description> {
    let wanted = if is_over { SUCCEEDED } else { PROGRESSING };
    let condition = status.conditions.iter().find(|condition| condition.type_ == wanted)?;
    let printable = |c: char| if c.is_control() { ' ' } else { c };
    let text: String = condition.message.chars().map(printable).take(MESSAGE).collect();
    text.parse().ok().filter(|_| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn upgrade(progress: Value, status: Value) -> ClusterUpgrade {
        let mut object = json!({"apiVersion": "provision.containership.io/v3", "kind": "ClusterUpgrade", "metadata": {"name": "u"},
            "spec": {"type": "kubernetes", "targetVersion": "v1.36.3"}});
        if !progress.is_null() {
            object["spec"]["status"] = progress;
        }
        if !status.is_null() {
            object["status"] = status;
        }
        serde_json::from_value(object).unwrap()
    }

    fn conditions(progressing: &str, succeeded: &str) -> Value {
        let condition = |type_: &str, message: &str| {
            json!({"type": type_, "status": "Unknown", "reason": "R", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        json!([condition(PROGRESSING, progressing), condition(SUCCEEDED, succeeded)])
    }

    #[test]
    fn an_upgrade_is_reported_as_the_cluster_says_it() {
        let waits =
            json!({"nodes": 3, "done": 1, "failed": 0, "conditions": conditions("it waits for its window", "-")});
        let runs = json!({"nodes": 3, "done": 1, "failed": 1, "conditions": conditions("w\u{7}1", "-")});
        let over = json!({"nodes": 3, "done": 3, "failed": 0, "conditions": conditions("the upgrade is over", "all nodes are done")});
        let long = json!({"nodes": 1, "done": 0, "failed": 0, "conditions": conditions(&"ü".repeat(2000), "-")});
        let running = json!({"clusterStatus": "InProgress", "nodeStatuses": {"w1": "InProgress", "w2": "Failed", "W 3": "Success", "w4": ""},
            "currentNode": "w1", "currentStartTime": "Sun Nov 22 05:29:17 UTC 2026"});
        let nothing = json!({"clusterStatus": null, "nodeStatuses": {}, "currentNode": null, "currentStartTime": null});
        let with = |mut base: Value, fields: Value| {
            base.as_object_mut()
                .unwrap()
                .extend(fields.as_object().unwrap().clone());
            base
        };
        let table = [
            (Value::Null, Value::Null, Value::Null),
            (Value::Null, json!({"nodes": 0}), Value::Null),
            (
                Value::Null,
                waits,
                with(
                    nothing.clone(),
                    json!({"nodes": 3, "done": 1, "failed": 0, "message": "it waits for its window"}),
                ),
            ),
            (
                running.clone(),
                runs,
                json!({"clusterStatus": "InProgress", "nodeStatuses": {"w1": "InProgress", "w2": "Failed"}, "currentNode": "w1",
                    "currentStartTime": "Sun Nov 22 05:29:17 UTC 2026", "nodes": 3, "done": 1, "failed": 1, "message": "w 1"}),
            ),
            // What the Go coordinator left has no counts.
            (
                json!({"clusterStatus": "InProgress", "nodeStatuses": {}, "currentNode": "", "currentStartTime": "yesterday"}),
                Value::Null,
                with(nothing.clone(), json!({"clusterStatus": "InProgress"})),
            ),
            (
                json!({"clusterStatus": "Success", "nodeStatuses": {"w1": "Success"}}),
                over,
                with(
                    nothing.clone(),
                    json!({"clusterStatus": "Success", "nodeStatuses": {"w1": "Success"}, "nodes": 3, "done": 3, "failed": 0,
                        "message": "all nodes are done"}),
                ),
            ),
            (
                Value::Null,
                long,
                with(
                    nothing,
                    json!({"nodes": 1, "done": 0, "failed": 0, "message": "ü".repeat(1024)}),
                ),
            ),
        ];
        for (progress, status, reported) in table {
            let found = report(&upgrade(progress.clone(), status.clone()));
            assert_eq!(serde_json::to_value(found).unwrap(), reported, "{progress} {status}");
        }
    }
}
