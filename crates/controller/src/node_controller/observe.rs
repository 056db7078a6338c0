//! The inputs of a plan: the Node and its record from the caches, its rivals, what the cloud says, what its group
//! defines. Changes nothing but the census of forged Nodes, in a step of its own.
//!
//! The cloud and the state store are asked only for what is not known already; both join the lookups of many Nodes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource as _;
use tidewaiter_api::node_identity::VERIFIED;
use tidewaiter_api::{
    Condition, ConditionStatus, InvalidValue, NodeIdentitySpec, NodeName, NodeUid, ProviderId, RecordedLabel,
};
use tidewaiter_identity::{Answer, Claim, Proven, Refusal};
use tidewaiter_kit::Key;
use tidewaiter_kops::{Definitions, OwnedKeys};

use super::census::{Brake, Classification};
use super::finding::{self, Finding, Given, OnForgery, Policy, judged};
use super::{NodeController, NodeError};
use crate::objects::{Node, Record};

/// The metadata and spec of a Node, as types.
#[derive(PartialEq)]
pub(crate) struct Claimed {
    pub(crate) name: NodeName,
    pub(crate) uid: NodeUid,
    pub(crate) claim: Option<Result<Claim, InvalidValue>>,
}

/// The answers of the cloud and the state store about a claim. Thousands of passes may hold one while they wait for a
/// permit.
pub(super) struct Found {
    response: Response,
    owned: Arc<OwnedKeys>,
    fresh_for: Option<Duration>,
}

/// A finding whose labels are still to be worked out: they are most of it.
pub(super) enum Response {
    Finding(Finding),
    Proven(Proven, Given),
}

impl NodeController {
    /// Returns the claim of the Node of this key; None if there is no such Node.
    pub(super) fn read(&self, key: &Key) -> Result<Option<Claimed>, NodeError> {
        self.nodes.get(key).map(|node| self.claimed(key, &node)).transpose()
    }

    fn claimed(&self, key: &Key, node: &Node) -> Result<Claimed, NodeError> {
        let claimants = node
            .claim()
            .map(|claim| self.claims.keys(&claim.into()))
            .unwrap_or_default();
        let rivals = claimants.iter().filter(|other| *other != key).map(Key::name);
        Ok(Claimed::read(node, rivals)?)
    }

    /// Asks the cloud and the state store about a claim.
    pub(super) async fn find(&self, claim: Option<Result<Claim, InvalidValue>>) -> Found {
        let unasked = |finding| Found {
            response: Response::Finding(finding),
            owned: Arc::default(),
            fresh_for: None,
        };
        let claim = match claim {
            None => return unasked(Finding::Unclaimed),
            Some(Err(error)) => return unasked(Finding::Malformed(error)),
            Some(Ok(claim)) => claim,
        };
        let (node, uid) = (claim.node.clone(), claim.uid.clone());
        let answer = self.identities.identify(claim).await;
        let fresh_for = answer.as_ref().ok().map(|answer: &Answer| answer.fresh_for);
        let record = self.records.get(&Key::new(node.as_str()));
        let recorded = record
            .as_deref()
            .map_or(&[][..], |record| record.labels_of(uid.as_str()));
        let proven = answer.map(|answer| answer.proven);
        let (response, owned) = define(proven, self.policy, &self.definitions, recorded).await;
        Found {
            response,
            owned,
            fresh_for,
        }
    }

    /// Returns the inputs of the plan; None if the Node is gone, or its claim changed during the query.
    pub(super) fn observe(&self, claimed: Claimed, found: Found) -> Result<Option<Observation>, NodeError> {
        let key = Key::new(claimed.name.as_str());
        let Some(node) = self.nodes.get(&key) else {
            return Ok(None);
        };
        if self.claimed(&key, &node)? != claimed {
            return Ok(None);
        }
        let record = self.records.get(&key);
        let finding = found.response.finding();
        Ok(Some(Observation {
            finding: judged(finding, record.as_deref(), claimed.uid.as_str(), self.policy),
            record,
            name: claimed.name,
            uid: claimed.uid,
            node,
            fresh_for: found.fresh_for,
            owned: found.owned,
            brake: Brake::Unjudged,
            policy: self.policy,
        }))
    }

    /// Classifies the Node, before the plan decides about quarantine: two forged Nodes of which each counts only itself
    /// must not both be quarantined.
    pub(super) fn count(&self, seen: &Observation) -> Brake {
        let uid = seen.uid.as_str();
        match &self.census {
            Some(census) => {
                let classification = Classification::of(&seen.finding, seen.record.as_deref(), uid);
                census.note(seen.name.as_str(), uid, classification)
            }
            None => Brake::Unjudged,
        }
    }
}

/// Returns the finding that follows from the cloud's answer, for a Node with the labels of `recorded`.
pub(super) async fn define(
    answer: Result<Proven, Refusal>,
    policy: Policy,
    definitions: &Definitions,
    recorded: &[RecordedLabel],
) -> (Response, Arc<OwnedKeys>) {
    let from = policy.labels_from;
    match answer {
        Ok(proven) => {
            let given = finding::given(from, definitions, &proven, recorded);
            let (given, owned) = tokio::join!(given, finding::owned(from, definitions));
            (Response::Proven(proven, given), owned)
        }
        Err(refusal) => {
            let owned = match policy.on_forgery {
                OnForgery::Quarantine if refusal.is_forgery() => finding::owned(from, definitions).await,
                _ => Arc::default(),
            };
            (Response::Finding(Finding::Refused(refusal)), owned)
        }
    }
}

impl Response {
    pub(super) fn finding(self) -> Finding {
        match self {
            Self::Finding(finding) => finding,
            Self::Proven(proven, given) => given.finding(proven),
        }
    }
}

impl Claimed {
    /// `rivals` are the names of the other Nodes that claim the same.
    pub(crate) fn read<'a>(node: &Node, rivals: impl Iterator<Item = &'a str>) -> Result<Self, InvalidValue> {
        let name: NodeName = node.metadata.name.as_deref().unwrap_or_default().parse()?;
        let uid: NodeUid = node.metadata.uid.as_deref().unwrap_or_default().parse()?;
        let claim = node.claim().map(|text| {
            let provider_id: ProviderId = text.parse()?;
            Ok(Claim {
                node: name.clone(),
                uid: uid.clone(),
                provider_id,
                addresses: node.status.internal_ips.clone(),
                rivals: rivals.filter_map(|rival| rival.parse().ok()).collect(),
            })
        });
        Ok(Self { name, uid, claim })
    }
}

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

impl Observation {
    /// The Node as an Event refers to it.
    pub(crate) fn reference(&self) -> ObjectReference {
        self.node.object_ref(&())
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

    pub(super) fn first_verified(&self) -> Option<Timestamp> {
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
}

pub(super) fn since_true(condition: &Condition) -> Option<Timestamp> {
    (condition.status == ConditionStatus::True).then_some(condition.last_transition_time)
}
