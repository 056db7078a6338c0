//! The inputs of a plan, and the record's conditions that follow from them.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use tidewaiter_api::node_identity::{LABELS_VALID, VERIFIED};
use tidewaiter_api::values::quoted;
use tidewaiter_api::{
    Condition, ConditionStatus, InvalidValue, NodeIdentitySpec, NodeIdentityStatus, NodeName, NodeUid, RecordedLabel,
};
use tidewaiter_identity::{Identity, Proven, Refusal};
use tidewaiter_kit::{Next, Retry};
use tidewaiter_kops::{DefinitionError, NodeLabels, OwnedKeys, RejectedLabel};

use super::Policy;
use super::error::NodeError;
use super::quarantine::brake::Brake;
use super::writes::RecordContent;
use crate::objects::{Node, Record};

/// Everything that a plan depends on, but for the time.
#[derive(Clone, Debug)]
pub(crate) struct Observation {
    /// The Node's name.
    pub name: NodeName,
    /// The Node's uid.
    pub uid: NodeUid,
    /// The Node as it was last seen.
    pub node: Arc<Node>,
    /// The record of that name, if there is one; it may speak of an earlier Node.
    pub record: Option<Arc<Record>>,
    /// The result of the identification of the Node.
    pub finding: Finding,
    /// The time for which the cloud's answer is cached; None if there was none.
    pub fresh_for: Option<Duration>,
    /// The groups that define each label key; filled only where the finding makes it matter.
    pub owned: Arc<OwnedKeys>,
    /// The state of the brake: it permits or prevents quarantine of a forged Node.
    pub brake: Brake,
    /// The operator's policy.
    pub policy: Policy,
}

/// The result of the identification of a Node.
#[derive(Clone, Debug)]
pub(crate) enum Finding {
    /// It claims nothing yet: the cloud controller manager sets its providerID.
    Unclaimed,
    /// Its providerID is malformed.
    Malformed(InvalidValue),
    /// The cloud or the proof refutes the claim, or the cloud could not be asked.
    Refused(Refusal),
    /// It is proven, and the definition of its group is not available.
    Undefined(Proven, DefinitionError),
    /// It is proven, and these are the labels of its group.
    Defined(Proven, NodeLabels),
}

impl Observation {
    /// The Node as an Event refers to it.
    pub(crate) fn reference(&self) -> ObjectReference {
        self.node.object_ref(&())
    }

    /// Returns the end of the pass once the plan has been carried out.
    ///
    /// # Errors
    /// When the cloud or the definition of the group was not available.
    pub(crate) fn next(self) -> Result<Next, NodeError> {
        match self.finding {
            Finding::Refused(refusal) if refusal.is_transient() => Err(NodeError::Cloud(refusal)),
            Finding::Undefined(_, error) => Err(NodeError::Undefined(error)),
            // The lookup tries again for all such Nodes together, and announces each.
            Finding::Refused(refusal) if refusal.may_be_too_new() => Ok(Next::Refused(Retry::Slow)),
            Finding::Refused(_) => Ok(Next::Refused(Retry::Backoff)),
            Finding::Malformed(_) => Ok(Next::Refused(Retry::Slow)),
            Finding::Unclaimed | Finding::Defined(..) => Ok(self.fresh_for.map_or(Next::UntilChanged, Next::After)),
        }
    }

    /// The labels that were set on this Node before.
    pub(crate) fn recorded(&self) -> &[RecordedLabel] {
        self.record
            .as_deref()
            .map_or(&[], |record| record.labels_of(self.uid.as_str()))
    }

    /// The record of this very Node, whatever it claimed.
    fn record_of_node(&self) -> Option<&Record> {
        let record = self.record.as_deref()?;
        (record.spec.node_uid == self.uid).then_some(record)
    }

    /// Returns true if the record says that this very Node is refused as forged.
    pub(crate) fn recorded_forgery(&self) -> bool {
        self.record_of_node()
            .is_some_and(|record| Refusal::is_recorded_forgery(&record.status))
    }

    /// The condition of this type that the record of this very Node holds.
    pub(crate) fn recorded_condition(&self, type_: &str) -> Option<&Condition> {
        let conditions = &self.record_of_node()?.status.conditions;
        conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Returns true if the cloud ever vouched for this very Node. A record that was written before there was a word for
    /// it tells by its labels: none was ever set without a proof.
    pub(crate) fn verified_before(&self) -> bool {
        self.first_verified().is_some() || !self.recorded().is_empty()
    }

    fn first_verified(&self) -> Option<Timestamp> {
        let first = self.record_of_node()?.status.first_verified;
        first.or_else(|| since_true(self.recorded_condition(VERIFIED)?))
    }

    /// The record of this very Node and claim.
    pub(crate) fn own_record(&self) -> Option<&Record> {
        self.record.as_deref().filter(|record| record.spec == self.spec())
    }

    pub(crate) fn spec(&self) -> NodeIdentitySpec {
        let claimed = self.node.spec.provider_id.as_deref().unwrap_or_default();
        let provider_id = match &self.finding {
            Finding::Malformed(error) => error.shown.clone(),
            _ => claimed.to_owned(),
        };
        NodeIdentitySpec {
            node_uid: self.uid.clone(),
            provider_id,
        }
    }

    pub(crate) fn verified(&self) -> Option<ConditionStatus> {
        let conditions = &self.own_record()?.status.conditions;
        Some(conditions.iter().find(|condition| condition.type_ == VERIFIED)?.status)
    }

    pub(crate) fn answered_before(&self) -> bool {
        matches!(self.verified(), Some(ConditionStatus::True | ConditionStatus::False))
    }

    pub(crate) fn was_refused(&self) -> bool {
        self.verified() == Some(ConditionStatus::False)
    }

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

fn since_true(condition: &Condition) -> Option<Timestamp> {
    (condition.status == ConditionStatus::True).then_some(condition.last_transition_time)
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
