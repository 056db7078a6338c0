//! From what was observed of a Node to what is to be written: pure, so that its rules can be read and tested as a
//! table.
//!
//! Invariants:
//! - Labels are given only to a Node whose identity was proven in this very observation.
//! - A refusal takes nothing away, but for quarantine, which is never for a Node that was verified before; an outage
//!   changes nothing at all on a Node that was verified before.
//! - Every key that was ever set is in the record until the Node is seen without it: the record is written before the
//!   Node with old and new keys together, and narrowed after.
//! - A pass over a world that is as it should be plans no write.

mod labels;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use tidewaiter_api::node_identity::{LABELS_VALID, VERIFIED};
use tidewaiter_api::{Condition, ConditionStatus, RecordedLabel};
use tidewaiter_identity::{Proven, Refusal};
use tidewaiter_kit::{Notice, NoticeKind};
use tidewaiter_kops::{DefinitionError, NodeLabels};

pub(crate) use labels::Foreign;
use labels::Keys;

use super::finding::Finding;
use super::observe::Observation;
use super::quarantine::{self, Decision};
use super::record::{NodePatch, RecordContent, rejected_words, vouched_words};

/// The writes, in this order; each part only if it changes something.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Plan {
    /// The record before the Node is touched: what is known, with old keys and new ones together.
    pub record: Option<RecordContent>,
    /// The change of the Node.
    pub patch: Option<NodePatch>,
    /// The record after the Node is as it should be.
    pub narrowed: Option<RecordContent>,
    /// The Events to publish for the Node's owner, whether or not the writes are accepted.
    pub notices: Vec<Notice>,
    /// The Events to publish once the writes are accepted.
    pub done: Vec<Notice>,
    /// The Node's state after the plan.
    pub state: NodeState,
    /// The decision of quarantine, if the Node is refused for forgery.
    pub decision: Option<Decision>,
    /// The number of its labels that only other groups define.
    pub foreign: usize,
}

/// The state of a Node after the plan: the gauge by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum NodeState {
    /// Nothing to do, and why.
    Waiting(&'static str),
    /// The cloud could not be queried.
    Unanswered,
    /// The cloud, or the proof, says no.
    Refused,
    /// The cloud, or the proof, says no, with evidence of a forged claim.
    Forged,
    /// Proven, without a definition.
    Undefined,
    /// Proven and labelled.
    Verified,
}

/// Decides what is to be written.
#[must_use]
pub(crate) fn plan(seen: &Observation, now: Timestamp) -> Plan {
    if seen.node.metadata.deletion_timestamp.is_some() {
        return Plan::nothing(NodeState::Waiting("the Node is being deleted"));
    }
    match &seen.finding {
        Finding::Unclaimed => Plan::nothing(NodeState::Waiting("the Node has no spec.providerID yet")),
        Finding::Malformed(error) => {
            let remedy =
                "Check that the cloud controller manager runs and that the node's kubelet is set up for this cloud.";
            refused(
                seen,
                "InvalidProviderId",
                &format!("{error}. {remedy}"),
                NodeState::Refused,
                quarantine::kept(seen),
                now,
            )
        }
        Finding::Refused(refusal) if refusal.is_transient() => unanswered(seen, refusal, now),
        Finding::Refused(refusal) if refusal.is_forgery() => forged(seen, refusal, now),
        Finding::Refused(refusal) => {
            let (reason, message) = (refusal.reason(), sentence(refusal));
            let quarantined = quarantine::kept(seen);
            refused(seen, reason, &message, NodeState::Refused, quarantined, now)
        }
        Finding::Undefined(proven, error) => undefined(seen, proven, error, now),
        Finding::Defined(proven, labels) => defined(seen, proven, labels, now),
    }
}

/// The cloud could not be asked: a Node that was answered before keeps everything as it is, and nothing is written for
/// it, so that an outage does not become a storm of writes. A new one gets a record that says why it has no labels.
fn unanswered(seen: &Observation, refusal: &Refusal, now: Timestamp) -> Plan {
    let mut plan = Plan::nothing(NodeState::Unanswered);
    plan.notices
        .push(Notice::warning(refusal.reason(), "Identify", sentence(refusal)));
    if !seen.answered_before() {
        let verified = seen.condition(
            VERIFIED,
            ConditionStatus::Unknown,
            refusal.reason(),
            &sentence(refusal),
            now,
        );
        plan.record = seen.unless_recorded(seen.content(None, seen.recorded().to_vec(), vec![verified]));
    }
    plan
}

/// The answer is no: the record says so, and the Node is left as it is.
fn refused(
    seen: &Observation,
    reason: &'static str,
    message: &str,
    state: NodeState,
    quarantined: Option<Condition>,
    now: Timestamp,
) -> Plan {
    let verified = seen.condition(VERIFIED, ConditionStatus::False, reason, message, now);
    let conditions = [verified].into_iter().chain(quarantined).collect();
    let mut plan = Plan::nothing(state);
    plan.record = seen.unless_recorded(seen.content(None, seen.recorded().to_vec(), conditions));
    plan.notices
        .push(Notice::warning(reason, "Identify", message.to_owned()));
    plan
}

/// The plan for a Node that is refused for forgery. The record says that it is quarantined before the Node is touched,
/// so that a crash in between is finished by the next pass; what is taken away is not ours and need not be remembered.
fn forged(seen: &Observation, refusal: &Refusal, now: Timestamp) -> Plan {
    let (decision, patch) = quarantine::treat(seen);
    let quarantined = quarantine::condition(seen, decision, refusal, now);
    let mut plan = refused(
        seen,
        refusal.reason(),
        &sentence(refusal),
        NodeState::Forged,
        quarantined,
        now,
    );
    plan.decision = Some(decision);
    plan.patch = patch;
    match decision {
        Decision::Quarantine => plan.done.extend(quarantine::notice(decision, plan.patch.as_ref())),
        _ => plan.notices.extend(quarantine::notice(decision, None)),
    }
    plan
}

/// Proven, but what its group gives cannot be read: the labels stay as they are.
fn undefined(seen: &Observation, proven: &Proven, error: &DefinitionError, now: Timestamp) -> Plan {
    let message = format!("{error}");
    let mut plan = Plan::nothing(NodeState::Undefined);
    plan.notices
        .push(Notice::warning(error.reason(), "Label", message.clone()));
    if error.is_transient() && seen.answered_before() {
        return plan;
    }
    let mut conditions = vec![
        seen.vouched(proven, now),
        seen.condition(LABELS_VALID, ConditionStatus::Unknown, error.reason(), &message, now),
    ];
    // The patch that brings the labels undoes a quarantine.
    conditions.extend(quarantine::kept(seen));
    plan.record = seen.unless_recorded(seen.content(Some(proven.identity()), seen.recorded().to_vec(), conditions));
    plan
}

/// Proven and defined: its labels become those of its group's definition.
fn defined(seen: &Observation, proven: &Proven, labels: &NodeLabels, now: Timestamp) -> Plan {
    let keys = Keys::of(&seen.node, seen.recorded(), labels);
    let foreign = Foreign::of(seen, &proven.identity().group, labels);
    let (foreign_before, foreign_after) = foreign.conditions(now);
    let content = |recorded: Vec<RecordedLabel>, foreign: Option<Condition>| {
        let always = [seen.vouched(proven, now), seen.labels_valid(&labels.rejected, now)];
        let conditions = always.into_iter().chain(foreign).chain(quarantine::undone(seen, now));
        seen.content(Some(proven.identity()), recorded, conditions.collect())
    };
    let narrow = content(keys.staying().cloned().collect(), foreign_after);
    let wide = content(keys.all(), foreign_before);

    let mut plan = Plan::nothing(NodeState::Verified);
    plan.foreign = foreign.count();
    plan.patch = keys.patch(foreign.to_remove());
    plan.narrowed = (wide != narrow).then_some(narrow);
    plan.record = seen.unless_recorded(wide);
    plan.notices.extend(
        proven
            .warning()
            .map(|weak| Notice::warning("NameNotEnforced", "Identify", weak.to_string())),
    );
    plan.notices.extend(
        labels
            .rejected
            .iter()
            .map(|label| Notice::warning("LabelRejected", "Label", rejected_words(label))),
    );
    plan.done.extend(keys.notice(&proven.identity().group));
    plan.done.extend(foreign.notice());
    if seen.was_refused() {
        plan.done.push(Notice {
            kind: NoticeKind::Normal,
            reason: "Verified".into(),
            action: "Identify".into(),
            note: vouched_words(proven.identity()),
        });
    }
    plan
}

impl Plan {
    /// Returns true if there is anything to write.
    pub(crate) fn writes(&self) -> bool {
        self.record.is_some() || self.patch.is_some() || self.narrowed.is_some()
    }

    fn nothing(state: NodeState) -> Self {
        Self {
            record: None,
            patch: None,
            narrowed: None,
            notices: Vec::new(),
            done: Vec::new(),
            state,
            decision: None,
            foreign: 0,
        }
    }
}

pub(crate) fn sentence(refusal: &Refusal) -> String {
    format!("{refusal}. {}", refusal.remedy())
}
