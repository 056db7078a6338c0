//! What a plan rests on: the Node and its record from the caches, its rivals, what the cloud says, what its group defines.
//!
//! The cloud and the state store are asked only for what is not kept already; both join the questions of many Nodes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::reflector::ObjectRef;
use tidewaiter_api::{InvalidValue, NodeName, NodeUid, ProviderId, RecordedLabel};
use tidewaiter_identity::{Answer, Claim, Proven, Refusal};
use tidewaiter_kit::Next;
use tidewaiter_kops::{Definitions, OwnedKeys};

use super::error::NodeError;
use super::forgeries::Verdict;
use super::node::Node;
use super::plan::{Brake, Finding, Observation};
use super::{NodeController, OnForgery, Policy, labels};

/// What a Node's metadata and spec say, as types.
#[derive(PartialEq)]
pub(super) struct Claimed {
    pub(super) name: NodeName,
    pub(super) uid: NodeUid,
    pub(super) claim: Option<Result<Claim, InvalidValue>>,
}

impl NodeController {
    /// Observes `node`, and when to look at it again; `None` when it is gone or claims something else by the time the cloud
    /// has answered.
    pub(super) async fn observe(&self, node: &Node) -> Result<Option<(Observation, Next)>, NodeError> {
        let asked = self.read(node)?;
        let (finding, owned, next) = self.find(asked.claim.clone()).await;
        // The answer took its time: the plan rests on the Node as it is now, if it still claims what was asked about.
        let Some(node) = self.nodes.get(&ObjectRef::new(asked.name.as_str())) else {
            return Ok(None);
        };
        if self.read(&node)? != asked {
            return Ok(None);
        }
        let record = self.records.get(&ObjectRef::new(asked.name.as_str()));
        let brake = self.brake(&asked, &finding);
        Ok(Some((
            Observation {
                name: asked.name,
                uid: asked.uid,
                node,
                record,
                finding,
                owned,
                brake,
                policy: self.policy,
            },
            next,
        )))
    }

    fn read(&self, node: &Node) -> Result<Claimed, NodeError> {
        let rivals = self.rivals.of(node.metadata.name.as_deref().unwrap_or_default());
        Ok(Claimed::read(node, rivals.iter().map(AsRef::as_ref))?)
    }

    async fn find(&self, claim: Option<Result<Claim, InvalidValue>>) -> (Finding, Arc<OwnedKeys>, Next) {
        let unowned = Arc::default;
        let claim = match claim {
            None => return (Finding::Unclaimed, unowned(), Next::UntilChanged),
            Some(Err(error)) => return (Finding::Malformed(error), unowned(), Next::UntilChanged),
            Some(Ok(claim)) => claim,
        };
        let (node, uid) = (claim.node.clone(), claim.uid.clone());
        let answer = self.identities.identify(claim).await;
        let next = match &answer {
            Ok(Answer { fresh_for, .. }) => Next::After(*fresh_for),
            Err(_) => Next::UntilChanged,
        };
        let record = self.records.get(&ObjectRef::new(node.as_str()));
        let recorded = record
            .as_deref()
            .map_or(&[][..], |record| record.labels_of(uid.as_str()));
        let proven = answer.map(|answer| answer.proven);
        let (finding, owned) = judge(proven, self.policy, &self.definitions, recorded).await;
        (finding, owned, next)
    }

    /// Counts what was found, and says whether a forged Node may be put into quarantine.
    fn brake(&self, asked: &Claimed, finding: &Finding) -> Brake {
        match &self.forgeries {
            Some(forgeries) => {
                let verdict = Verdict::of(finding);
                forgeries.note(asked.name.as_str(), asked.uid.as_str(), verdict, self.nodes.len())
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
) -> (Finding, Arc<OwnedKeys>) {
    let from = policy.labels_from;
    match answer {
        Ok(proven) => tokio::join!(
            labels::find(from, definitions, proven, recorded),
            labels::owned(from, definitions)
        ),
        Err(refusal) => {
            let owned = match policy.on_forgery {
                OnForgery::Quarantine if refusal.is_forgery() => labels::owned(from, definitions).await,
                _ => Arc::default(),
            };
            (Finding::Refused(refusal), owned)
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
