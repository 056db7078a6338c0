//! The treatment of a Node that is refused for forgery: [`decide`] derives it from four facts, for the plan and for the
//! explanation of a plan. Pure.
//!
//! A refusal can be wrong for many Nodes at once (a tag that was changed everywhere, names that follow another rule),
//! and a Node that loses its labels loses its workload. So there is a brake: see [`Brake`].

use jiff::Timestamp;
use tidewaiter_api::names::UNIDENTIFIED_TAINT;
use tidewaiter_api::node_identity::QUARANTINED;
use tidewaiter_api::{Condition, ConditionStatus};
use tidewaiter_identity::Refusal;
use tidewaiter_kit::Notice;

use super::census::Brake;
use super::finding::OnForgery;
use super::observe::Observation;
use super::record::NodePatch;

/// The treatment of a forged Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Decision {
    /// It is only reported: that is the setting.
    Report,
    /// It was verified before, so the cloud may have changed its mind rather than the Node.
    Spare,
    /// Not every Node has been classified yet.
    Wait,
    /// Nothing, because too many are refused.
    Hold,
    /// It is quarantined, or stays quarantined.
    Quarantine,
}

/// Decides what is done to a forged Node that was, or was not, `verified_before`.
#[must_use]
pub(crate) fn decide(on_forgery: OnForgery, verified_before: bool, brake: Brake) -> Decision {
    match (on_forgery, brake) {
        (OnForgery::Report, _) => Decision::Report,
        (OnForgery::Quarantine, _) if verified_before => Decision::Spare,
        (OnForgery::Quarantine, Brake::Unjudged) => Decision::Wait,
        (OnForgery::Quarantine, Brake::Held) => Decision::Hold,
        (OnForgery::Quarantine, Brake::Free) => Decision::Quarantine,
    }
}

/// Returns the treatment of a Node that is refused for forgery, and the change of the Node that follows; independent of
/// the finding.
pub(crate) fn treat(seen: &Observation) -> (Decision, Option<NodePatch>) {
    let decision = decide(seen.policy.on_forgery, seen.verified_before(), seen.brake);
    let patch = (decision == Decision::Quarantine).then(|| patch(seen)).flatten();
    (decision, patch)
}

/// Returns the condition of a Node that is in quarantine, while nothing decides about that.
pub(crate) fn kept(seen: &Observation) -> Option<Condition> {
    let before = seen.recorded_condition(QUARANTINED)?;
    (before.status == ConditionStatus::True).then(|| before.clone())
}

/// Returns the condition of a proven Node that was in quarantine.
pub(crate) fn undone(seen: &Observation, now: Timestamp) -> Option<Condition> {
    seen.recorded_condition(QUARANTINED)?;
    let words = "the cloud vouches for the Node";
    Some(seen.condition(QUARANTINED, ConditionStatus::False, "Proven", words, now))
}

/// Returns the condition. The counts are left out, so that each Node that comes or goes does not rewrite the records of
/// all.
pub(crate) fn condition(
    seen: &Observation,
    decision: Decision,
    refusal: &Refusal,
    now: Timestamp,
) -> Option<Condition> {
    let condition = |status, reason, words: &str| Some(seen.condition(QUARANTINED, status, reason, words, now));
    match decision {
        Decision::Quarantine => {
            let words = format!(
                "refused for forgery ({}): the labels that only a proven Node may have are removed, and it is tainted",
                refusal.reason()
            );
            condition(ConditionStatus::True, "Forged", &words)
        }
        // A quarantined Node stays so until the proof succeeds; only nothing more is done.
        Decision::Report => kept(seen),
        Decision::Wait => seen.recorded_condition(QUARANTINED).cloned(),
        Decision::Hold | Decision::Spare if kept(seen).is_some() => kept(seen),
        Decision::Hold => condition(
            ConditionStatus::False,
            "TooManyForged",
            "more Nodes are refused for forgery than are put into quarantine at once: nothing is done to any of them",
        ),
        Decision::Spare => condition(
            ConditionStatus::False,
            "VerifiedBefore",
            "the cloud vouched for this very Node before",
        ),
    }
}

/// Everything on the Node that only a proven one may have goes, and the taint comes; only what differs.
fn patch(seen: &Observation) -> Option<NodePatch> {
    let keys = seen.node.labels().keys().filter(|key| seen.owned.needs_proof(key));
    let patch = NodePatch {
        remove: keys.cloned().collect(),
        taints: seen.node.taints_with_startup_taint(),
        ..NodePatch::default()
    };
    (patch != NodePatch::default()).then_some(patch)
}

pub(crate) fn notice(decision: Decision, patch: Option<&NodePatch>) -> Option<Notice> {
    match decision {
        Decision::Quarantine => {
            let removed: Vec<&str> = patch?.remove.iter().map(String::as_str).collect();
            let labels = if removed.is_empty() {
                "no label had to go".to_owned()
            } else {
                format!("removed {}", removed.join(", "))
            };
            let note = format!(
                "The Node is in quarantine until the cloud vouches for it: {labels}; the taint {UNIDENTIFIED_TAINT} keeps pods away."
            );
            Some(Notice::warning("Quarantined", "Quarantine", note))
        }
        Decision::Hold => {
            // Without counts: each forged Node that comes or goes would be a new Event on every other one.
            let note = "More than a tenth of the Nodes are refused for forgery, so none of them is quarantined. Find out whether they \
                are forged, or whether something has changed for all of them; tidewaiter_quarantine_held counts them.";
            Some(Notice::warning("QuarantineHeld", "Quarantine", note.to_owned()))
        }
        Decision::Report | Decision::Spare | Decision::Wait => None,
    }
}

impl Decision {
    /// Every word of the gauge `tidewaiter_forged_nodes`.
    pub(crate) const WORDS: [&str; 5] = ["reported", "spared", "waiting", "held", "quarantined"];

    /// The word of the gauge `tidewaiter_forged_nodes`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Report => "reported",
            Self::Spare => "spared",
            Self::Wait => "waiting",
            Self::Hold => "held",
            Self::Quarantine => "quarantined",
        }
    }
}
