//! What becomes of a Node that is refused for forgery. [`decide`] says it from four facts, for the plan and for whoever asks
//! what a plan would do.
//!
//! A refusal can be wrong for many Nodes at once (a tag that was changed everywhere, names that follow another rule), and a
//! Node that loses its labels loses its workload. So there is a brake: see [`Brake`].

use jiff::Timestamp;
use tidewaiter_api::names::UNIDENTIFIED_TAINT;
use tidewaiter_api::node_identity::QUARANTINED;
use tidewaiter_api::{Condition, ConditionStatus};
use tidewaiter_identity::Refusal;
use tidewaiter_kit::Notice;

use super::super::policy::OnForgery;
use super::{NodePatch, Observation, Plan, Standing, refused, sentence, warning};

/// Of so many Nodes one may be in quarantine, and one in any case.
const NODES_FOR_ONE: usize = 10;

/// Whether forged Nodes may be put into quarantine, from how many there are. Every Node that is refused for forgery counts,
/// also one that would be spared: a mistake shows in those first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::node_controller) enum Brake {
    /// Some Node has not been judged since the start, so nobody knows how many there are.
    Unjudged,
    /// They may.
    Free,
    /// There are too many to be believed.
    Held {
        /// The Nodes that are refused for forgery.
        forged: usize,
        /// How many of them are believed.
        limit: usize,
    },
}

impl Brake {
    /// How many forged ones are believed among so many.
    #[must_use]
    pub(in crate::node_controller) fn limit(nodes: usize) -> usize {
        (nodes / NODES_FOR_ONE).max(1)
    }

    /// Where it stands once all `nodes` have been judged and `forged` of them were refused for forgery.
    #[must_use]
    pub(in crate::node_controller) fn of(nodes: usize, forged: usize) -> Self {
        let limit = Self::limit(nodes);
        if forged > limit {
            Self::Held { forged, limit }
        } else {
            Self::Free
        }
    }
}

/// What becomes of a forged Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::node_controller) enum Decision {
    /// It is only reported: that is the setting.
    Report,
    /// It was verified before, so the cloud may have changed its mind rather than the Node.
    Spare,
    /// Not every Node has been judged yet.
    Wait,
    /// Nothing, because too many are refused.
    Hold {
        /// The Nodes that are refused for forgery.
        forged: usize,
        /// How many of them are believed.
        limit: usize,
    },
    /// It is put into quarantine, or kept in it.
    Quarantine,
}

/// Decides what becomes of a forged Node that was, or was not, `verified_before`.
#[must_use]
pub(in crate::node_controller) fn decide(on_forgery: OnForgery, verified_before: bool, brake: Brake) -> Decision {
    match (on_forgery, brake) {
        (OnForgery::Report, _) => Decision::Report,
        (OnForgery::Quarantine, _) if verified_before => Decision::Spare,
        (OnForgery::Quarantine, Brake::Unjudged) => Decision::Wait,
        (OnForgery::Quarantine, Brake::Held { forged, limit }) => Decision::Hold { forged, limit },
        (OnForgery::Quarantine, Brake::Free) => Decision::Quarantine,
    }
}

/// What is done to a Node that is refused for forgery, and the change of it that follows; whatever was found out about it.
pub(in crate::node_controller) fn treat(seen: &Observation) -> (Decision, Option<NodePatch>) {
    let decision = decide(seen.policy.on_forgery, seen.verified_before(), seen.brake);
    let patch = (decision == Decision::Quarantine).then(|| patch(seen)).flatten();
    (decision, patch)
}

/// The plan for a Node that is refused for forgery. The record says that it is in quarantine before the Node is touched, so
/// that a crash in between is finished by the next pass; what is taken away is not ours and need not be remembered.
pub(super) fn forged(seen: &Observation, refusal: &Refusal, now: Timestamp) -> Plan {
    let (decision, patch) = treat(seen);
    let quarantined = condition(seen, decision, refusal, now);
    let (reason, message) = (refusal.reason(), sentence(refusal));
    let mut plan = refused(seen, reason, &message, Standing::Forged, quarantined, now);
    plan.decision = Some(decision);
    plan.patch = patch;
    plan.notices.extend(notice(decision, plan.patch.as_ref()));
    plan
}

/// What the record goes on to say of a Node that is in quarantine, while nothing decides about that.
pub(super) fn kept(seen: &Observation) -> Option<Condition> {
    let before = seen.recorded_condition(QUARANTINED)?;
    (before.status == ConditionStatus::True).then(|| before.clone())
}

/// What a proven Node's record says: that it was in quarantine, if it was.
pub(super) fn undone(seen: &Observation, now: Timestamp) -> Option<Condition> {
    seen.recorded_condition(QUARANTINED)?;
    let words = "the cloud vouches for the Node";
    Some(seen.condition(QUARANTINED, ConditionStatus::False, "Proven", words, now))
}

/// What the record says. The counts are left out, so that each Node that comes or goes does not rewrite the records of all.
fn condition(seen: &Observation, decision: Decision, refusal: &Refusal, now: Timestamp) -> Option<Condition> {
    let say = |status, reason, words: &str| Some(seen.condition(QUARANTINED, status, reason, words, now));
    match decision {
        Decision::Quarantine => {
            let words = format!(
                "refused for forgery ({}): without the labels that only a proven Node may have, and tainted",
                refusal.reason()
            );
            say(ConditionStatus::True, "Forged", &words)
        }
        // Who is in stays in until the proof succeeds; only nothing more is done.
        Decision::Report => kept(seen),
        Decision::Wait => seen.recorded_condition(QUARANTINED).cloned(),
        Decision::Hold { .. } | Decision::Spare if kept(seen).is_some() => kept(seen),
        Decision::Hold { .. } => say(
            ConditionStatus::False,
            "TooManyForged",
            "more Nodes are refused for forgery than are put into quarantine at once: nothing is done to any of them",
        ),
        Decision::Spare => say(
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

fn notice(decision: Decision, patch: Option<&NodePatch>) -> Option<Notice> {
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
            Some(warning("Quarantined", "Quarantine", note))
        }
        Decision::Hold { forged, limit } => {
            let note = format!(
                "{forged} Nodes are refused for forgery, and at most {limit} (a tenth of the Nodes) would be put into quarantine \
                 at once: nothing is done to any of them. Find out whether they are forged, or whether something has changed for all."
            );
            Some(warning("QuarantineHeld", "Quarantine", note))
        }
        Decision::Report | Decision::Spare | Decision::Wait => None,
    }
}
