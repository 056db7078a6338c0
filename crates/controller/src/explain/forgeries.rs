//! What quarantine would do to each Node that is refused for forgery, or why it would do nothing.

use std::sync::Arc;

use serde::Serialize;
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::node_identity::{QUARANTINED, VERIFIED};
use tidewaiter_api::values::printable;
use tidewaiter_kops::OwnedKeys;

use super::ExplainError;
use super::answer::TreatmentExplained;
use super::live::{Live, name_of};
use crate::node_controller::observation::{Finding, Observation};
use crate::node_controller::observe::Claimed;
use crate::node_controller::quarantine::brake::Brake;
use crate::node_controller::quarantine::{Classification, Decision, treat};
use crate::node_controller::{OnForgery, Policy};

/// Every forged Node, and how many there may be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForgeriesExplained {
    /// Nodes in the cluster.
    pub nodes: usize,
    /// Those that are refused for forgery.
    pub forged: usize,
    /// How many of those are believed: with more nothing is done to any of them.
    pub limit: usize,
    /// Those that the controller has not judged, before which nothing is done either.
    pub unjudged: usize,
    /// Whether it is known of every group which labels it defines. Else a forged Node may lose more than is said here.
    pub keys_known: bool,
    /// The forged ones, by name.
    pub forgeries: Vec<ForgeryExplained>,
}

/// One forged Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForgeryExplained {
    /// The Node.
    pub node: String,
    /// Why it is refused, in one word.
    pub reason: String,
    /// Why it is refused, and what to do about it.
    pub message: String,
    /// Whether it is in quarantine already.
    pub quarantined: bool,
    /// What becomes of it with `onForgery: quarantine`.
    pub treatment: TreatmentExplained,
}

pub(super) fn explain(live: &Live, owned: &Arc<OwnedKeys>) -> Result<ForgeriesExplained, ExplainError> {
    let census = live.recorded_census();
    let mut forgeries = Vec::new();
    let forged = |node: &&Arc<_>| live.classify(node) == Some(Classification::Forged);
    for node in live.nodes.iter().filter(forged) {
        let claimed = Claimed::read(node, std::iter::empty())?;
        let seen = Observation {
            name: claimed.name,
            uid: claimed.uid,
            node: Arc::clone(node),
            record: live.record(name_of(node)),
            // What becomes of a forged Node does not depend on it.
            finding: Finding::Unclaimed,
            fresh_for: None,
            owned: Arc::clone(owned),
            brake: census.brake(),
            policy: Policy::default(),
        };
        let verified = seen.recorded_condition(VERIFIED);
        forgeries.push(ForgeryExplained {
            node: seen.name.to_string(),
            reason: verified.map(|told| printable(&told.reason)).unwrap_or_default(),
            message: verified.map(|told| printable(&told.message)).unwrap_or_default(),
            quarantined: is_quarantined(&seen),
            treatment: treatment(seen),
        });
    }
    forgeries.sort_by(|a, b| a.node.cmp(&b.node));
    Ok(ForgeriesExplained {
        nodes: census.nodes,
        forged: census.forged,
        limit: Brake::limit(census.nodes),
        unjudged: census.unjudged,
        keys_known: owned.is_complete(),
        forgeries,
    })
}

fn is_quarantined(seen: &Observation) -> bool {
    let told = seen.recorded_condition(QUARANTINED);
    told.is_some_and(|told| told.status == ConditionStatus::True)
}

/// What quarantine does to a Node that is refused for forgery, whatever the setting is.
pub(super) fn treatment(mut seen: Observation) -> TreatmentExplained {
    seen.policy.on_forgery = OnForgery::Quarantine;
    let (decision, patch) = treat(&seen);
    let (labels, taint) = patch.map_or((Vec::new(), false), |patch| {
        (patch.remove.into_iter().collect(), patch.taints.is_some())
    });
    TreatmentExplained {
        decision: decision.word(),
        why: why(decision, labels.is_empty() && !taint),
        labels,
        taint,
    }
}

fn why(decision: Decision, clean: bool) -> String {
    match decision {
        Decision::Report => "onForgery is report".to_owned(),
        Decision::Spare => "the cloud vouched for this very Node before".to_owned(),
        Decision::Wait => "not every Node has been classified yet".to_owned(),
        Decision::Hold => "too many Nodes are refused for forgery: nothing is done to any of them".to_owned(),
        Decision::Quarantine if clean => "nothing is left to be taken, and the taint is there".to_owned(),
        Decision::Quarantine => "it was never verified, and few enough are forged".to_owned(),
    }
}
