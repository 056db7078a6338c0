//! The effect of quarantine on each Node that is refused for forgery, or the reason why there is none.

use std::sync::Arc;

use serde::Serialize;
use tidewaiter_api::ConditionStatus;
use tidewaiter_api::node_identity::{QUARANTINED, VERIFIED};
use tidewaiter_api::values::printable;
use tidewaiter_kops::OwnedKeys;

use super::ExplainError;
use super::answer::TreatmentExplained;
use super::live::{Live, name_of};
use crate::node_controller::census::{Brake, Classification};
use crate::node_controller::finding::Finding;
use crate::node_controller::observe::{Claimed, Observation};
use crate::node_controller::quarantine::{Decision, treat};
use crate::node_controller::{OnForgery, Policy};

/// Every forged Node, and the limit of quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForgeriesExplained {
    /// Nodes in the cluster.
    pub nodes: usize,
    /// The Nodes that are refused for forgery.
    pub forged: usize,
    /// The most forged Nodes at which quarantine acts: with more, none is changed.
    pub limit: usize,
    /// The Nodes that the controller has not classified yet: until then, quarantine changes none either.
    pub unjudged: usize,
    /// True if the label keys of every group are known. Otherwise a forged Node may lose more labels than are listed
    /// here.
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
    /// The reason of the refusal, in one word.
    pub reason: String,
    /// The reason of the refusal, and the remedy.
    pub message: String,
    /// True if it is in quarantine already.
    pub quarantined: bool,
    /// The effect of `onForgery: quarantine` on it.
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
            // The treatment of a forged Node does not depend on it.
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

/// Returns the effect of quarantine on a Node that is refused for forgery, whatever the setting is.
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
        Decision::Spare => "the cloud confirmed the identity of this Node before".to_owned(),
        Decision::Wait => "not every Node has been classified yet".to_owned(),
        Decision::Hold => "too many Nodes are refused for forgery, so none is changed".to_owned(),
        Decision::Quarantine if clean => "it has no label to lose, and it has the taint".to_owned(),
        Decision::Quarantine => "it was never verified, and the number of forged Nodes is within the limit".to_owned(),
    }
}
