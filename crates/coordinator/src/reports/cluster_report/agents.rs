//! The summary of the agents' `NodeReport`s. They are listed and not watched, because each is large and the summary may
//! be some minutes old.

use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::{Deserialize, Serialize};
use tidewaiter_api::node_report::{APPLIED, FOREIGN_LINES, KEYS_EXPIRING};
use tidewaiter_api::{Condition, ConditionStatus, NodeReport};
use tidewaiter_cloud::models::AgentsReport;
use tidewaiter_kit::cache::list_all;
use tidewaiter_kit::client::optional;
use tidewaiter_kit::{Cache, Guarded, Key, slim};
use tracing::debug;

use crate::node::Node;

/// The age at which the reports are listed again.
const AGE: Duration = Duration::from_mins(2);

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, Resource)]
#[resource(inherit = NodeReport)]
struct SlimReport {
    #[serde(deserialize_with = "slim::without_labels")]
    metadata: ObjectMeta,
    #[serde(default)]
    status: Status,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Status {
    #[serde(default)]
    conditions: Vec<Condition>,
}

/// The agents of the cluster.
pub(super) struct Agents {
    nodes: Cache<Node>,
    client: Client,
    /// The last summary, and when it was made; monotonic.
    last: Option<(Option<AgentsReport>, Duration)>,
}

impl Agents {
    pub(super) fn new(nodes: Cache<Node>, client: Client) -> Self {
        Self {
            nodes,
            client,
            last: None,
        }
    }

    /// The summary, which is at most [`AGE`] old; `None` if the reports cannot be read.
    pub(super) async fn report(&mut self, now: Duration) -> Option<AgentsReport> {
        if let Some((summary, at)) = &self.last
            && now.saturating_sub(*at) < AGE
        {
            return summary.clone();
        }
        let listed = list_all(&Api::<Guarded<SlimReport>>::all(self.client.clone())).await;
        let summary = match optional(listed) {
            // Without their definition there are none.
            Ok(found) => {
                let (reports, undecodable) = found.unwrap_or_default();
                let names = undecodable.iter().filter_map(|report| report.metadata.name.clone());
                let unread = names.map(|name| (name, Vec::new()));
                let read = reports
                    .into_iter()
                    .map(|report| (report.name_any(), report.status.conditions));
                let is_node = |name: &str| self.nodes.get(&Key::new(name)).is_some();
                Some(summary(self.nodes.len(), is_node, read.chain(unread)))
            }
            Err(error) => {
                debug!(%error, "the NodeReports cannot be read");
                None
            }
        };
        self.last = Some((summary.clone(), now));
        summary
    }
}

/// The summary of the conditions by node, of so many nodes. A report without a Node does not count. Pure.
fn summary(
    nodes: usize,
    is_node: impl Fn(&str) -> bool,
    reports: impl Iterator<Item = (String, Vec<Condition>)>,
) -> AgentsReport {
    let mut summary = AgentsReport {
        nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
        ..AgentsReport::default()
    };
    for (_, conditions) in reports.filter(|(node, _)| is_node(node)) {
        let is_true = |type_: &str| {
            let condition = conditions.iter().find(|condition| condition.type_ == type_);
            u32::from(condition.is_some_and(|condition| condition.status == ConditionStatus::True))
        };
        summary.reporting += 1;
        summary.not_applied += 1 - is_true(APPLIED);
        summary.stale += is_true(KEYS_EXPIRING);
        summary.foreign_lines += is_true(FOREIGN_LINES);
    }
    summary
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_reports_of_nodes_are_counted_by_their_conditions() {
        let report = |node: &str, conditions: &[(&str, &str)]| {
            let conditions = conditions.iter().map(|(type_, status)| {
                let condition = json!({"type": type_, "status": status, "reason": "R", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z"});
                serde_json::from_value(condition).unwrap()
            });
            (node.to_owned(), conditions.collect::<Vec<Condition>>())
        };
        let reports = [
            report("a", &[(APPLIED, "True")]),
            report("b", &[(APPLIED, "False"), (FOREIGN_LINES, "True")]),
            report(
                "c",
                &[(APPLIED, "True"), (KEYS_EXPIRING, "True"), (FOREIGN_LINES, "False")],
            ),
            // One that cannot be read, and one of a node that is gone.
            report("d", &[]),
            report("gone", &[(APPLIED, "False")]),
        ];
        let found = summary(5, |name| name != "gone", reports.into_iter());
        let expected = AgentsReport {
            nodes: 5,
            reporting: 4,
            not_applied: 2,
            stale: 1,
            foreign_lines: 1,
        };
        assert_eq!(found, expected);
    }
}
