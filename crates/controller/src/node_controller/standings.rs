//! Where each Node stands, as metrics: how many are verified, refused, forged, …; and how often each refusal was given.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use prometheus::{IntCounterVec, IntGaugeVec};
use tidewaiter_kit::Metrics;
use tidewaiter_kit::metrics::MetricsError;

use super::plan::{Finding, Observation, Plan, Standing};

/// The standing of every Node that was reconciled.
#[derive(Debug)]
pub(super) struct Standings {
    nodes: Mutex<HashMap<Box<str>, Standing>>,
    gauge: IntGaugeVec,
    refusals: IntCounterVec,
    rejected: IntCounterVec,
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
            refusals,
            rejected,
        })
    }

    /// Notes the outcome of a pass.
    pub(super) fn note(&self, seen: &Observation, plan: &Plan) {
        self.set(seen.name.as_str(), Some(plan.standing));
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

    fn set(&self, name: &str, standing: Option<Standing>) {
        let mut nodes = self.nodes.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match standing {
            Some(standing) => nodes.insert(name.into(), standing),
            None => nodes.remove(name),
        };
        drop(nodes);
        if let Some(before) = before {
            self.gauge.with_label_values(&[before.word()]).dec();
        }
        if let Some(standing) = standing {
            self.gauge.with_label_values(&[standing.word()]).inc();
        }
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
