//! The writes of the NodeController: the content of a record with its conditions, and the change of a Node.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tidewaiter_api::node_identity::{LABELS_VALID, VERIFIED};
use tidewaiter_api::values::quoted;
use tidewaiter_api::{
    Condition, ConditionStatus, LabelKey, LabelValue, NodeIdentitySpec, NodeIdentityStatus, RecordedLabel,
};
use tidewaiter_identity::{Identity, Proven};
use tidewaiter_kops::RejectedLabel;

use super::finding::Finding;
use super::observe::{Observation, since_true};

/// The content of a record; its name and owner follow from the Node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordContent {
    /// The claim of the Node.
    pub spec: NodeIdentitySpec,
    /// The result of its verification.
    pub status: NodeIdentityStatus,
}

/// The keys of a Node that differ from what they should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodePatch {
    /// Labels to set.
    pub set: BTreeMap<LabelKey, LabelValue>,
    /// Labels to remove.
    pub remove: BTreeSet<String>,
    /// All taints as they are to be, when the startup taint is to be removed or added.
    pub taints: Option<Vec<serde_json::Value>>,
}

impl Observation {
    pub(crate) fn condition(
        &self,
        type_: &str,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) -> Condition {
        let previous = self.own_record().map_or(&[][..], |record| &record.status.conditions);
        Condition::new(type_, status, reason, message, previous, now)
    }

    pub(crate) fn vouched(&self, proven: &Proven, now: Timestamp) -> Condition {
        let (reason, message) = match proven.warning() {
            None => (
                "Proven",
                format!("{}; {}", vouched_words(proven.identity()), proven.mark().writers()),
            ),
            Some(weak) => ("NameNotEnforced", weak.to_string()),
        };
        self.condition(VERIFIED, ConditionStatus::True, reason, &message, now)
    }

    pub(crate) fn labels_valid(&self, rejected: &[RejectedLabel], now: Timestamp) -> Condition {
        if rejected.is_empty() {
            return self.condition(
                LABELS_VALID,
                ConditionStatus::True,
                "AllValid",
                "every label of the definition can be set",
                now,
            );
        }
        let words: Vec<String> = rejected.iter().map(rejected_words).collect();
        self.condition(
            LABELS_VALID,
            ConditionStatus::False,
            "LabelRejected",
            &words.join("; "),
            now,
        )
    }

    pub(crate) fn content(
        &self,
        identity: Option<&Identity>,
        mut labels: Vec<RecordedLabel>,
        conditions: Vec<Condition>,
    ) -> RecordContent {
        labels.sort_by(|a, b| a.key.cmp(&b.key));
        let verified = conditions.iter().find(|condition| condition.type_ == VERIFIED);
        let first_verified = self.first_verified().or_else(|| verified.and_then(since_true));
        let status = NodeIdentityStatus {
            instance: identity.map(|identity| identity.instance.clone()),
            instance_group: identity
                .map(|identity| identity.group.clone())
                .or_else(|| self.record.as_deref()?.group_of(self.uid.as_str())),
            zone: identity.map(|identity| identity.zone.clone()),
            lifecycle: identity.map(|identity| identity.lifecycle),
            first_verified,
            forged: matches!(&self.finding, Finding::Refused(refusal) if refusal.is_forgery()),
            labels,
            conditions,
        };
        RecordContent {
            spec: self.spec(),
            status,
        }
    }

    pub(crate) fn unless_recorded(&self, content: RecordContent) -> Option<RecordContent> {
        let same = self.record.as_deref().is_some_and(|record| {
            record.spec == content.spec && record.status == content.status && record.is_owned_by(self.uid.as_str())
        });
        (!same).then_some(content)
    }
}

pub(crate) fn vouched_words(identity: &Identity) -> String {
    format!(
        "instance {} of group {} in {}",
        identity.instance, identity.group, identity.zone
    )
}

pub(crate) fn rejected_words(label: &RejectedLabel) -> String {
    let place = [label.file.as_str(), label.field.as_str()].join(" ");
    let (place, key) = (place.trim_start(), quoted(&label.key));
    format!("{place}: label {key} was not set: {}", label.reason)
}
