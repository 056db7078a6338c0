//! The reports of a pass: Events, the state of each Node as gauges, and counters. Written after the writes, with their
//! result.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};
use tidewaiter_kit::metrics::MetricsError;
use tidewaiter_kit::{Key, Metrics, Notice, WriteLimits};

use super::NodeController;
use super::finding::Finding;
use super::observe::Observation;
use super::plan::{NodeState, Plan};
use super::quarantine::Decision;

impl NodeController {
    /// Reports a pass whose writes were accepted, or not.
    pub(super) fn report(&self, seen: &Observation, plan: &Plan, applied: bool) {
        self.status.count(seen, plan, applied);
        let done = plan.done.iter().filter(|_| applied);
        for notice in plan.notices.iter().chain(done) {
            self.events.publish(&seen.reference(), notice.clone());
        }
    }
}

/// Returns the Event for the owner of a Node that changes too often.
pub(super) fn changes_too_often() -> Notice {
    let note = format!(
        "What this Node reports, or its labels, change so often that its labels and its record are written only every {} s. Find out what \
         changes them: its kubelet, or another controller.",
        WriteLimits::REFILL.as_secs()
    );
    Notice::warning("ChangesTooOften", "Write", note)
}

/// The gauges and counters.
#[derive(Debug)]
pub(crate) struct Status {
    nodes: Mutex<BTreeMap<Key, Counted>>,
    gauge: IntGaugeVec,
    forged: IntGaugeVec,
    foreign: IntGauge,
    refusals: IntCounterVec,
    rejected: IntCounterVec,
}

/// The counted properties of one Node.
#[derive(Clone, Copy, Debug)]
struct Counted {
    state: &'static str,
    decision: Option<Decision>,
    foreign: u32,
}

/// The state of a Node that is proven and whose last plan could not be written. What refuses a Node is so whatever is
/// written.
const FAILED: &str = "failed";

impl Status {
    pub(crate) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let gauge = metrics.gauge_vec(
            "tidewaiter_nodes",
            "Nodes by state: verified, undefined, refused, forged, unanswered, waiting, failed (proven, and the last write was not accepted).",
            &["state"],
        )?;
        for state in NodeState::ALL.map(NodeState::word).into_iter().chain([FAILED]) {
            gauge.with_label_values(&[state]).set(0);
        }
        let forged = metrics.gauge_vec(
            "tidewaiter_forged_nodes",
            "Nodes that are refused for forgery, by what is done to them (reported, spared, waiting, held, quarantined).",
            &["decision"],
        )?;
        for decision in Decision::WORDS {
            forged.with_label_values(&[decision]).set(0);
        }
        let foreign = metrics.gauge(
            "tidewaiter_foreign_labels",
            "Labels on verified Nodes whose keys only other groups define, as of the last pass over each Node.",
        )?;
        let refusals = metrics.counter_vec(
            "tidewaiter_refusals_total",
            "Passes that gave a Node no labels, by reason, and whether the reason is evidence of forgery.",
            &["reason", "forged"],
        )?;
        let rejected = metrics.counter_vec(
            "tidewaiter_labels_rejected_total",
            "Labels of a definition that were left out because Kubernetes rejects them, counted at each pass.",
            &[],
        )?;
        Ok(Self {
            nodes: Mutex::default(),
            gauge,
            forged,
            foreign,
            refusals,
            rejected,
        })
    }

    /// Counts a pass whose writes were accepted, or not.
    pub(crate) fn count(&self, seen: &Observation, plan: &Plan, applied: bool) {
        let counted = Counted {
            state: match plan.state {
                NodeState::Verified | NodeState::Undefined if !applied => FAILED,
                state => state.word(),
            },
            decision: plan.decision.map(|decision| match decision {
                Decision::Quarantine if !applied => Decision::Wait,
                decision => decision,
            }),
            foreign: u32::try_from(plan.foreign).unwrap_or(u32::MAX),
        };
        self.set(&Key::new(seen.name.as_str()), Some(counted));
        let forged = if plan.state == NodeState::Forged {
            "true"
        } else {
            "false"
        };
        match &seen.finding {
            Finding::Refused(refusal) => self.refusals.with_label_values(&[refusal.reason(), forged]).inc(),
            Finding::Malformed(_) => self.refusals.with_label_values(&["InvalidProviderId", forged]).inc(),
            Finding::Undefined(_, error) => self.refusals.with_label_values(&[error.reason(), forged]).inc(),
            Finding::Defined(_, labels) => {
                self.rejected
                    .with_label_values::<&str>(&[])
                    .inc_by(labels.rejected.len() as u64);
            }
            Finding::Unclaimed => {}
        }
    }

    /// Nothing could be planned for the Node, because its record cannot be read.
    pub(crate) fn blocked(&self, key: &Key) {
        let blocked = Counted {
            state: FAILED,
            decision: None,
            foreign: 0,
        };
        self.set(key, Some(blocked));
    }

    /// The Node is gone.
    pub(crate) fn forget(&self, key: &Key) {
        self.set(key, None);
    }

    fn set(&self, key: &Key, counted: Option<Counted>) {
        let mut nodes = self.nodes.lock();
        let before = match counted {
            Some(counted) => nodes.insert(key.clone(), counted),
            None => nodes.remove(key),
        };
        drop(nodes);
        if let Some(before) = before {
            self.add(before, -1);
        }
        if let Some(counted) = counted {
            self.add(counted, 1);
        }
    }

    fn add(&self, counted: Counted, sign: i64) {
        self.gauge.with_label_values(&[counted.state]).add(sign);
        if let Some(decision) = counted.decision {
            self.forged.with_label_values(&[decision.word()]).add(sign);
        }
        self.foreign.add(sign * i64::from(counted.foreign));
    }
}

impl NodeState {
    const ALL: [Self; 6] = [
        Self::Verified,
        Self::Undefined,
        Self::Refused,
        Self::Forged,
        Self::Unanswered,
        Self::Waiting(""),
    ];

    fn word(self) -> &'static str {
        match self {
            Self::Waiting(_) => "waiting",
            Self::Unanswered => "unanswered",
            Self::Refused => "refused",
            Self::Forged => "forged",
            Self::Undefined => "undefined",
            Self::Verified => "verified",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;
    use tidewaiter_kit::{Clock as _, ManualClock};

    use super::*;
    use crate::node_controller::Policy;
    use crate::node_controller::census::Brake;
    use crate::node_controller::plan::plan;

    #[test]
    fn a_node_whose_write_failed_is_not_counted_as_planned() {
        let clock = ManualClock::default();
        let metrics = Metrics::new(&clock.shared()).unwrap();
        let status = Status::new(&metrics).unwrap();
        let node = json!({"metadata": {"name": "n", "uid": "u"}});
        let seen = Observation {
            name: "n".parse().unwrap(),
            uid: "u".parse().unwrap(),
            node: Arc::new(serde_json::from_value(node).unwrap()),
            record: None,
            finding: Finding::Unclaimed,
            fresh_for: None,
            owned: Arc::default(),
            brake: Brake::Unjudged,
            policy: Policy::default(),
        };
        let mut plan = plan(&seen, clock.now());
        let count = |state: &str| status.gauge.with_label_values(&[state]).get();
        let forged = |decision: &str| status.forged.with_label_values(&[decision]).get();
        status.count(&seen, &plan, false);
        assert_eq!((count("waiting"), count(FAILED)), (1, 0), "that it waits is no plan");
        plan.state = NodeState::Verified;
        status.count(&seen, &plan, false);
        assert_eq!((count("verified"), count(FAILED)), (0, 1));
        status.count(&seen, &plan, true);
        assert_eq!((count("verified"), count(FAILED)), (1, 0));
        (plan.state, plan.decision) = (NodeState::Forged, Some(Decision::Quarantine));
        status.count(&seen, &plan, false);
        assert_eq!((count("forged"), forged("waiting"), forged("quarantined")), (1, 1, 0));
        status.count(&seen, &plan, true);
        assert_eq!((count("forged"), forged("waiting"), forged("quarantined")), (1, 0, 1));
        status.forget(&Key::new("n"));
        assert_eq!((count("forged"), forged("quarantined"), count(FAILED)), (0, 0, 0));
    }
}
