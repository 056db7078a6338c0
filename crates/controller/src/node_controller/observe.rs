//! What a plan rests on: the Node and its record from the caches, its rivals, what the cloud says, what its group defines.
//!
//! The cloud and the state store are asked only for what is not kept already; both join the questions of many Nodes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use tidewaiter_api::{InvalidValue, NodeName, NodeUid, ProviderId, RecordedLabel};
use tidewaiter_identity::{Answer, Claim, Proven, Refusal};
use tidewaiter_kit::{Key, Next};
use tidewaiter_kops::{Definitions, OwnedKeys};

use super::error::NodeError;
use super::forgeries::Verdict;
use super::labels::{self, Given};
use super::node::Node;
use super::plan::{Brake, Finding, Observation};
use super::record::Record;
use super::{NodeController, OnForgery, Policy};

/// What a Node's metadata and spec say, as types.
#[derive(PartialEq)]
pub(super) struct Claimed {
    pub(super) name: NodeName,
    pub(super) uid: NodeUid,
    pub(super) claim: Option<Result<Claim, InvalidValue>>,
}

/// What the cloud and the state store say of a claim, before its turn has come. Thousands of passes may hold one.
pub(super) struct Found {
    told: Told,
    owned: Arc<OwnedKeys>,
    next: Next,
}

/// A finding whose labels are still to be worked out: they are most of it.
pub(super) enum Told {
    Finding(Finding),
    Proven(Proven, Given),
}

impl NodeController {
    /// What `node` says of itself.
    pub(super) fn read(&self, node: &Node) -> Result<Claimed, NodeError> {
        let rivals = self.rivals.of(node.metadata.name.as_deref().unwrap_or_default());
        Ok(Claimed::read(node, rivals.iter().map(AsRef::as_ref))?)
    }

    /// Asks the cloud and the state store about a claim.
    pub(super) async fn find(&self, claim: Option<Result<Claim, InvalidValue>>) -> Found {
        let unasked = |finding| Found {
            told: Told::Finding(finding),
            owned: Arc::default(),
            next: Next::UntilChanged,
        };
        let claim = match claim {
            None => return unasked(Finding::Unclaimed),
            Some(Err(error)) => return unasked(Finding::Malformed(error)),
            Some(Ok(claim)) => claim,
        };
        let (node, uid) = (claim.node.clone(), claim.uid.clone());
        let answer = self.identities.identify(claim).await;
        let next = match &answer {
            Ok(Answer { fresh_for, .. }) => Next::After(*fresh_for),
            Err(_) => Next::UntilChanged,
        };
        let record = self.records.get(&Key::new(node.as_str()));
        let recorded = record
            .as_deref()
            .map_or(&[][..], |record| record.labels_of(uid.as_str()));
        let proven = answer.map(|answer| answer.proven);
        let (told, owned) = judge(proven, self.policy, &self.definitions, recorded).await;
        Found { told, owned, next }
    }

    /// What the plan rests on, and when to look at it again; `None` when the Node is gone, or claims something else than what was
    /// asked about: the answer took its time.
    pub(super) fn observe(&self, asked: Claimed, found: Found) -> Result<Option<(Observation, Next)>, NodeError> {
        let Some(node) = self.nodes.get(&Key::new(asked.name.as_str())) else {
            return Ok(None);
        };
        if self.read(&node)? != asked {
            return Ok(None);
        }
        let record = self.records.get(&Key::new(asked.name.as_str()));
        let finding = found.told.finding();
        let brake = self.brake(&asked, record.as_deref(), &finding);
        let observation = Observation {
            name: asked.name,
            uid: asked.uid,
            node,
            record,
            finding,
            owned: found.owned,
            brake,
            policy: self.policy,
        };
        Ok(Some((observation, found.next)))
    }

    /// Counts what was found, and says whether a forged Node may be put into quarantine.
    fn brake(&self, asked: &Claimed, record: Option<&Record>, finding: &Finding) -> Brake {
        let uid = asked.uid.as_str();
        match &self.forgeries {
            Some(forgeries) => {
                let verdict = Verdict::of(finding, record, uid);
                forgeries.note(asked.name.as_str(), uid, verdict, self.nodes.len())
            }
            None => Brake::Unjudged,
        }
    }
}

/// What follows from the cloud's answer about a Node that has been given the labels of `recorded` before.
pub(super) async fn judge(
    answer: Result<Proven, Refusal>,
    policy: Policy,
    definitions: &Definitions,
    recorded: &[RecordedLabel],
) -> (Told, Arc<OwnedKeys>) {
    let from = policy.labels_from;
    match answer {
        Ok(proven) => {
            let given = labels::given(from, definitions, &proven, recorded);
            let (given, owned) = tokio::join!(given, labels::owned(from, definitions));
            (Told::Proven(proven, given), owned)
        }
        Err(refusal) => {
            let owned = match policy.on_forgery {
                OnForgery::Quarantine if refusal.is_forgery() => labels::owned(from, definitions).await,
                _ => Arc::default(),
            };
            (Told::Finding(Finding::Refused(refusal)), owned)
        }
    }
}

impl Told {
    pub(super) fn finding(self) -> Finding {
        match self {
            Self::Finding(finding) => finding,
            Self::Proven(proven, given) => given.finding(proven),
        }
    }
}

impl Claimed {
    /// `rivals` are the names of the other Nodes that claim the same.
    pub(super) fn read<'a>(node: &Node, rivals: impl Iterator<Item = &'a str>) -> Result<Self, InvalidValue> {
        let name: NodeName = node.metadata.name.as_deref().unwrap_or_default().parse()?;
        let uid: NodeUid = node.metadata.uid.as_deref().unwrap_or_default().parse()?;
        let provider_id = node.spec.provider_id.as_deref().filter(|id| !id.is_empty());
        let claim = provider_id.map(|text| {
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

impl Observation {
    /// The Node, as an Event refers to it.
    pub(super) fn reference(&self) -> ObjectReference {
        self.node.object_ref(&())
    }
}
