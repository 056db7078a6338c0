//! Where each Node stands, as metrics: how many are verified, refused, forged, …, what becomes of the forged ones, how many
//! labels of other groups there are; and how often each refusal was given.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use prometheus::{IntCounterVec, IntGauge, IntGaugeVec};
use tidewaiter_kit::Metrics;
use tidewaiter_kit::metrics::MetricsError;

use super::plan::{Decision, Finding, Observation, Plan, Standing};

/// The standing of every Node that was reconciled.
#[derive(Debug)]
pub(super) struct Standings {
    nodes: Mutex<HashMap<Box<str>, Stands>>,
    gauge: IntGaugeVec,
    forged: IntGaugeVec,
    foreign: IntGauge,
    refusals: IntCounterVec,
    rejected: IntCounterVec,
}

/// What is counted of one Node.
#[derive(Clone, Copy, Debug)]
struct Stands {
    standing: Standing,
    decision: Option<Decision>,
    foreign: u32,
}

impl Standings {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let gauge = metrics.gauge_vec(
            "tidewaiter_nodes",
            "Nodes by where they stand (verified, undefined, refused, forged, unanswered, waiting).",
            &["state"],
        )?;
        for state in Standing::ALL {
            gauge.with_label_values(&[state.word()]).set(0);
        }
        let forged = metrics.gauge_vec(
            "tidewaiter_forged_nodes",
            "Nodes that are refused for forgery, by what becomes of them (reported, spared, waiting, held, quarantined).",
            &["decision"],
        )?;
        for decision in Decision::WORDS {
            forged.with_label_values(&[decision]).set(0);
        }
        let foreign = metrics.gauge(
            "tidewaiter_foreign_labels",
            "Labels on verified Nodes whose keys only other groups define, as the last pass over each Node found them.",
        )?;
        let refusals = metrics.counter_vec(
            "tidewaiter_refusals_total",
            "Passes that gave a Node no labels, by reason, and whether the reason is evidence of forgery.",
            &["reason", "forged"],
        )?;
        let rejected = metrics.counter_vec(
            "tidewaiter_labels_rejected_total",
            "Labels of a definition that were left out because Kubernetes would refuse them, counted at each pass.",
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

    /// Notes the outcome of a pass.
    pub(super) fn note(&self, seen: &Observation, plan: &Plan) {
        let stands = Stands {
            standing: plan.standing,
            decision: plan.decision,
            foreign: u32::try_from(plan.foreign).unwrap_or(u32::MAX),
        };
        self.set(seen.name.as_str(), Some(stands));
        let forged = if plan.standing == Standing::Forged {
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

    /// The Node is gone.
    pub(super) fn forget(&self, name: &str) {
        self.set(name, None);
    }

    fn set(&self, name: &str, stands: Option<Stands>) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match stands {
            Some(stands) => nodes.insert(name.into(), stands),
            None => nodes.remove(name),
        };
        drop(nodes);
        if let Some(before) = before {
            self.add(before, -1);
        }
        if let Some(stands) = stands {
            self.add(stands, 1);
        }
    }

    fn add(&self, stands: Stands, sign: i64) {
        self.gauge.with_label_values(&[stands.standing.word()]).add(sign);
        if let Some(decision) = stands.decision {
            self.forged.with_label_values(&[decision.word()]).add(sign);
        }
        self.foreign.add(sign * i64::from(stands.foreign));
    }
}

impl Standing {
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

impl Decision {
    const WORDS: [&str; 5] = ["reported", "spared", "waiting", "held", "quarantined"];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Report => "reported",
            Self::Spare => "spared",
            Self::Wait => "waiting",
            Self::Hold { .. } => "held",
            Self::Quarantine => "quarantined",
        }
    }
}
