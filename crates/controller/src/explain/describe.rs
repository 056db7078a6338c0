//! From an observation to the answer about one Node. Pure.
//!
//! Whatever somebody else wrote into an object is made fit to be shown here.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tidewaiter_api::names::EXCLUSIVE_ROLE_LABELS;
use tidewaiter_api::node_identity::VERIFIED;
use tidewaiter_api::values::printable;
use tidewaiter_api::{Condition, ConditionStatus, NodeName, RecordedLabel};
use tidewaiter_identity::Refusal;
use tidewaiter_kops::{NodeLabels, RejectedLabel, WantedLabel};

use super::answer::{
    ChangeExplained, ConditionExplained, ForeignExplained, LabelExplained, NodeExplained, RejectedExplained,
    RemovedExplained, SetExplained, TaintExplained, VerifiedExplained,
};
use super::forgeries::treatment;
use crate::node_controller::finding::Finding;
use crate::node_controller::observe::Observation;
use crate::node_controller::plan::{Foreign, NodeState, Plan, plan, sentence};
use crate::node_controller::record::NodePatch;

/// Explains what was observed; `uncompared` says why that is not enough for a plan, and then the finding says nothing.
pub(super) fn explain(
    seen: &Observation,
    uncompared: Option<String>,
    asked_cloud: bool,
    now: Timestamp,
) -> NodeExplained {
    let planned = uncompared.is_none().then(|| plan(seen, now));
    let foreign = foreign(seen);
    let labels = labels(seen);
    let change = match (&planned, uncompared) {
        (Some(planned), _) => change(seen, planned, &foreign),
        (None, why) => ChangeExplained {
            why: printable(&why.unwrap_or_default()),
            ..ChangeExplained::default()
        },
    };
    let verified = verified(seen, planned.is_some(), now);
    let own = |text: &Option<String>| text.as_deref().map(printable);
    let identity = match &seen.finding {
        Finding::Undefined(proven, _) | Finding::Defined(proven, _) => Some(proven.identity()),
        Finding::Unclaimed | Finding::Malformed(_) | Finding::Refused(_) => None,
    };
    // An earlier finding about a refused Node says nothing of what it is.
    let recorded = seen
        .own_record()
        .filter(|_| planned.is_none())
        .map(|record| &record.status);
    NodeExplained {
        node: seen.name.to_string(),
        provider_id: printable(seen.node.spec.provider_id.as_deref().unwrap_or_default()),
        asked: if asked_cloud { "cloud" } else { "record" },
        instance: identity
            .map(|identity| identity.instance.clone())
            .or_else(|| own(&recorded?.instance)),
        group: identity
            .map(|identity| identity.group.to_string())
            .or_else(|| recorded?.instance_group.as_ref().map(ToString::to_string)),
        zone: identity
            .map(|identity| identity.zone.clone())
            .or_else(|| own(&recorded?.zone)),
        lifecycle: identity
            .map(|identity| identity.lifecycle)
            .or_else(|| recorded?.lifecycle),
        others: others(seen, &labels, &foreign, &change),
        quarantine: is_forged(seen, &verified).then(|| treatment(seen.clone())),
        verified,
        labels,
        rejected: definition(seen).map_or_else(Vec::new, |labels| labels.rejected.iter().map(rejected).collect()),
        foreign,
        conditions: conditions(seen),
        change,
        notes: Vec::new(),
        events: Vec::new(),
    }
}

fn definition(seen: &Observation) -> Option<&NodeLabels> {
    match &seen.finding {
        Finding::Defined(_, labels) => Some(labels),
        _ => None,
    }
}

fn verified(seen: &Observation, found: bool, now: Timestamp) -> VerifiedExplained {
    let verified = |status, reason: &str, message: &str| VerifiedExplained {
        status,
        reason: printable(reason),
        message: printable(message),
    };
    let condition = |condition: &Condition| verified(condition.status, &condition.reason, &condition.message);
    match &seen.finding {
        Finding::Defined(proven, _) | Finding::Undefined(proven, _) => condition(&seen.vouched(proven, now)),
        Finding::Refused(refusal) => verified(ConditionStatus::False, refusal.reason(), &sentence(refusal)),
        Finding::Malformed(error) => verified(ConditionStatus::False, "InvalidProviderId", &error.to_string()),
        Finding::Unclaimed if found => verified(ConditionStatus::Unknown, "NoProviderId", "it has no providerID yet"),
        Finding::Unclaimed => match seen.recorded_condition(VERIFIED) {
            Some(recorded) => condition(recorded),
            None => verified(ConditionStatus::Unknown, "NoRecord", "the Node has no record yet"),
        },
    }
}

/// By the cloud's own word where it was asked, else by the record's.
fn is_forged(seen: &Observation, verified: &VerifiedExplained) -> bool {
    match &seen.finding {
        Finding::Refused(refusal) => refusal.is_forgery(),
        _ => verified.status == ConditionStatus::False && seen.recorded_forgery(),
    }
}

fn labels(seen: &Observation) -> Vec<LabelExplained> {
    let on_node = |key: &str| seen.node.labels().get(key).map(|value| printable(value));
    let wanted = |label: &WantedLabel| LabelExplained {
        key: label.key.to_string(),
        value: label.value.to_string(),
        source: label.source,
        file: printable(&label.file),
        on_node: on_node(label.key.as_str()),
    };
    let recorded = |label: &RecordedLabel| LabelExplained {
        key: label.key.to_string(),
        value: label.value.to_string(),
        source: label.source,
        file: printable(&label.file),
        on_node: on_node(label.key.as_str()),
    };
    match definition(seen) {
        Some(labels) => labels.wanted.iter().map(wanted).collect(),
        None => seen.recorded().iter().map(recorded).collect(),
    }
}

fn rejected(label: &RejectedLabel) -> RejectedExplained {
    RejectedExplained {
        key: printable(&label.key),
        value: printable(&label.value),
        source: label.source,
        file: printable(&label.file),
        field: printable(&label.field),
        reason: printable(&label.reason),
    }
}

fn foreign(seen: &Observation) -> Vec<ForeignExplained> {
    let Finding::Defined(proven, given) = &seen.finding else {
        return Vec::new();
    };
    let foreign = Foreign::of(seen, &proven.identity().group, given);
    let explained = foreign.labels.iter().map(|label| ForeignExplained {
        key: printable(label.key),
        groups: label.owners.iter().map(ToString::to_string).collect(),
    });
    explained.collect()
}

fn conditions(seen: &Observation) -> Vec<ConditionExplained> {
    let all = seen.own_record().map_or(&[][..], |record| &record.status.conditions);
    let others = all.iter().filter(|condition| condition.type_ != VERIFIED);
    let explained = others.map(|condition| ConditionExplained {
        type_: printable(&condition.type_),
        status: condition.status,
        reason: printable(&condition.reason),
        message: printable(&condition.message),
    });
    explained.collect()
}

fn change(seen: &Observation, planned: &Plan, foreign: &[ForeignExplained]) -> ChangeExplained {
    let why = match (planned.state, &seen.finding) {
        (NodeState::Waiting(why), _) => why.to_owned(),
        (_, Finding::Undefined(_, error)) => printable(&error.to_string()),
        (_, Finding::Refused(Refusal::GroupChanged { .. })) => held(&seen.name),
        (_, Finding::Refused(_) | Finding::Malformed(_)) => {
            "it is refused: it gets no labels until the cloud confirms its identity".to_owned()
        }
        _ => String::new(),
    };
    let nothing = NodePatch::default();
    let patch = planned.patch.as_ref().unwrap_or(&nothing);
    let set = patch.set.iter().map(|(key, value)| SetExplained {
        key: key.to_string(),
        value: value.to_string(),
    });
    let remove = patch.remove.iter().map(|key| RemovedExplained {
        key: printable(key),
        why: why_removed(seen, key, foreign),
    });
    let lifted = definition(seen).is_some();
    let taint = patch.taints.as_ref().map(|_| {
        if lifted {
            TaintExplained::Lifted
        } else {
            TaintExplained::Set
        }
    });
    let record = planned.record.is_some() || planned.narrowed.is_some();
    ChangeExplained {
        compared: true,
        differs: record || planned.patch.is_some(),
        why,
        set: set.collect(),
        remove: remove.collect(),
        taint,
        record,
    }
}

/// The remedy for a Node whose group has changed. The message of its condition `Verified` names both groups.
pub(super) fn held(node: &NodeName) -> String {
    format!(
        "it is held: it keeps what it has. To have a Node of the other group, replace the instance: kops delete instance {node} --yes"
    )
}

fn why_removed(seen: &Observation, key: &str, foreign: &[ForeignExplained]) -> String {
    if definition(seen).is_none() {
        return "only a proven Node may have it".to_owned();
    }
    if let Some(label) = seen.recorded().iter().find(|label| label.key.as_str() == key) {
        let from = printable(&label.file);
        return match from.as_str() {
            "" => "its instance no longer defines it".to_owned(),
            file => format!("{file} no longer defines it"),
        };
    }
    if EXCLUSIVE_ROLE_LABELS.contains(&key) {
        return "it names a role that its group does not have".to_owned();
    }
    let owners = foreign
        .iter()
        .find(|label| label.key == key)
        .map(|label| label.groups.join(", "));
    format!("only other groups define it: {}", owners.unwrap_or_default())
}

/// Labels of the Node that nothing else here speaks of.
fn others(
    seen: &Observation,
    labels: &[LabelExplained],
    foreign: &[ForeignExplained],
    change: &ChangeExplained,
) -> usize {
    let reported: BTreeSet<&str> = labels
        .iter()
        .map(|label| label.key.as_str())
        .chain(foreign.iter().map(|label| label.key.as_str()))
        .chain(change.remove.iter().map(|label| label.key.as_str()))
        .collect();
    seen.node
        .labels()
        .keys()
        .filter(|key| !reported.contains(key.as_str()))
        .count()
}
