//! The reports of a node and of the cluster. Pure.
//!
//! A kubelet writes the conditions of its Node: only its word for the state of the condition and a reason that looks
//! like one are passed on.

use serde_json::{Value, json};
use tidewaiter_cloud::models;

use crate::node::Node;

const RUNNING: &str = "RUNNING";
const NOT_READY: &str = "NOT_READY";
const UNKNOWN: &str = "UNKNOWN";
/// The longest reason that is passed on.
const REASON: usize = 64;

/// A status, as the cloud shows it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Status {
    kind: String,
    message: String,
    percent: f64,
}

impl Status {
    /// The status of a node.
    pub(super) fn of_node(node: &Node) -> Self {
        if node.is_ready() {
            return Self::new(RUNNING, String::new(), 100.0);
        }
        let message = match node.ready() {
            None => "the kubelet has not reported yet".to_owned(),
            Some(ready) => {
                let state = if &*ready.status == "False" {
                    "not ready"
                } else {
                    "not reachable"
                };
                let plain = |text: &str| text.len() <= REASON && text.bytes().all(|byte| byte.is_ascii_alphanumeric());
                match ready.reason.as_deref().unwrap_or_default() {
                    "" => state.to_owned(),
                    reason if plain(reason) => format!("{state}: {reason}"),
                    _ => state.to_owned(),
                }
            }
        };
        Self::new(NOT_READY, message, 0.0)
    }

    /// The status of a node without a Node in the cluster.
    pub(super) fn missing() -> Self {
        Self::new(UNKNOWN, "the cluster has no Node for it".to_owned(), 0.0)
    }

    /// The status of a cluster that has `total` Nodes, of which `ready` are ready.
    pub(super) fn of_cluster(ready: usize, total: usize) -> Self {
        let kind = if ready > 0 { RUNNING } else { NOT_READY };
        let percent = (100 * ready).checked_div(total).unwrap_or_default();
        let percent = u8::try_from(percent).unwrap_or(100);
        Self::new(kind, format!("{ready} of {total} Nodes are ready"), percent.into())
    }

    fn new(kind: &str, message: String, percent: f64) -> Self {
        Self {
            kind: kind.to_owned(),
            message,
            percent,
        }
    }

    /// Returns true if it is one that a coordinator reports. Others come from the program that creates the machine.
    pub(super) fn is_ours(&self) -> bool {
        [RUNNING, NOT_READY].contains(&self.kind.as_str())
    }

    /// The body of the request.
    pub(super) fn report(&self) -> Value {
        json!({"status": {"type": self.kind, "message": self.message, "percent": self.percent}})
    }
}

impl From<models::Status> for Status {
    fn from(shown: models::Status) -> Self {
        Self {
            kind: shown.status.to_string(),
            message: shown.message.to_string(),
            percent: shown.percent.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidewaiter_cloud::models::{NodeStatusReport, Unknown, parse};

    use super::*;

    fn node(conditions: &Value) -> Node {
        serde_json::from_value(json!({"metadata": {"name": "a"}, "status": {"conditions": conditions}})).unwrap()
    }

    fn ready(status: &str, reason: &str) -> Node {
        let pressure = json!({"type": "MemoryPressure", "status": "True", "reason": "Hungry"});
        node(&json!([pressure, {"type": "Ready", "status": status, "reason": reason, "lastHeartbeatTime": null}]))
    }

    #[test]
    fn a_node_is_as_its_condition_ready() {
        for (node, kind, message) in [
            (ready("True", "KubeletReady"), RUNNING, ""),
            (
                ready("False", "KubeletNotReady"),
                NOT_READY,
                "not ready: KubeletNotReady",
            ),
            (
                ready("Unknown", "NodeStatusUnknown"),
                NOT_READY,
                "not reachable: NodeStatusUnknown",
            ),
            (ready("False", ""), NOT_READY, "not ready"),
            (ready("False", "a\nb"), NOT_READY, "not ready"),
            (ready("False", "\u{1b}[31m"), NOT_READY, "not ready"),
            (ready("False", &"a".repeat(65)), NOT_READY, "not ready"),
            (ready("<script>", "x"), NOT_READY, "not reachable: x"),
            (node(&json!([])), NOT_READY, "the kubelet has not reported yet"),
            (node(&json!(null)), NOT_READY, "the kubelet has not reported yet"),
        ] {
            let status = Status::of_node(&node);
            assert_eq!((status.kind.as_str(), status.message.as_str()), (kind, message));
        }
    }

    #[test]
    fn a_cluster_runs_as_long_as_a_node_is_ready() {
        for (ready, total, kind, message, percent) in [
            (0, 0, NOT_READY, "0 of 0 Nodes are ready", 0.0),
            (0, 2, NOT_READY, "0 of 2 Nodes are ready", 0.0),
            (2, 3, RUNNING, "2 of 3 Nodes are ready", 66.0),
            (1, 1, RUNNING, "1 of 1 Nodes are ready", 100.0),
        ] {
            let status = Status::of_cluster(ready, total);
            assert_eq!(status, Status::new(kind, message.to_owned(), percent));
        }
    }

    #[test]
    fn the_cloud_shows_what_was_reported() {
        for status in [
            Status::of_node(&ready("True", "")),
            Status::of_node(&ready("False", "KubeletNotReady")),
            Status::missing(),
            Status::of_cluster(2, 3),
        ] {
            let sent = status.report().to_string();
            let read: NodeStatusReport = parse(sent.as_bytes(), Unknown::Refuse).unwrap();
            assert_eq!(
                Status::from(read.status),
                status,
                "else it would be sent again and again"
            );
        }
    }
}
