//! The reports of the passes: the source of each Node's node pool, and the number of contradictions between a label and
//! the cloud.

use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};

use prometheus::IntCounterVec;
use tidewaiter_kit::metrics::{MetricsError, StateGauge};
use tidewaiter_kit::{Key, Metrics, Notice, WriteLimits};
use tracing::info;

use super::plan::{Observation, Plan};
use crate::node_pools::Pool;

/// The notice for the owner of a Node that changes too often.
pub(super) fn changes_too_often() -> Notice {
    let note = format!(
        "The labels of this Node change so often that they are corrected only every {} s. Find out what changes them: its kubelet, or \
         another controller.",
        WriteLimits::REFILL.as_secs()
    );
    Notice::warning("ChangesTooOften", "Label", note)
}

/// The gauge and the counter.
#[derive(Debug)]
pub(super) struct Status {
    /// The word that is counted of each Node.
    nodes: StateGauge<&'static str>,
    corrections: IntCounterVec,
    label_decides: AtomicBool,
}

/// The word of a Node whose label contradicts the cloud, and is not corrected yet.
const CONTRADICTED: &str = "contradicted";

const WORDS: [&str; 5] = ["cloud", "label", "none", "unknown", CONTRADICTED];

impl Status {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let decisions = [
            "tidewaiter_node_pool_decisions",
            "Nodes by what decided their node pool: cloud, label (the cloud knows no names), none (in no node pool), unknown (the cloud has not \
             been read), contradicted (the label contradicts the cloud, and is not corrected yet).",
            "decision",
        ];
        let nodes = StateGauge::new(metrics, decisions, WORDS, slice::from_ref)?;
        let corrections = metrics.counter_vec(
            "tidewaiter_node_pool_corrections_total",
            "Labels containership.io/node-pool-id that contradicted the cloud and were corrected.",
            &[],
        )?;
        corrections.with_label_values::<&str>(&[]).inc_by(0);
        Ok(Self {
            nodes,
            corrections,
            label_decides: AtomicBool::new(false),
        })
    }

    /// Counts a pass whose patch was accepted, or not.
    pub(super) fn count(&self, seen: &Observation, plan: &Plan, applied: bool) {
        if plan.contradicted && applied {
            self.corrections.with_label_values::<&str>(&[]).inc();
        }
        let word = match &seen.pool {
            _ if plan.contradicted && !applied => CONTRADICTED,
            Pool::ByCloud(_) => "cloud",
            Pool::ByLabel(_) => "label",
            Pool::None | Pool::Refused => "none",
            Pool::Unknown => "unknown",
        };
        if word == "label" && !self.label_decides.swap(true, Ordering::Relaxed) {
            info!(
                node = seen.node.name(),
                "the label decides the node pool of Nodes that the cloud does not know by name"
            );
        }
        self.nodes.set(&Key::new(seen.node.name()), Some(word));
    }

    /// The Node is gone.
    pub(super) fn forget(&self, key: &Key) {
        self.nodes.set(key, None);
    }
}
