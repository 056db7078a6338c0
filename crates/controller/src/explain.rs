//! The reason for the labels of a Node, and the writes of a pass over it now: for a person who asks.
//!
//! The answer is that of the very functions by which the controller decides, on an observation that is made from live
//! reads. Who the Node is comes from its record, which the controller wrote and no kubelet can, or afresh from the
//! cloud. Nothing is written, and nothing is kept.

mod answer;
mod describe;
mod forgeries;
mod live;

use std::sync::Arc;

use kube::Client;
use parking_lot::Mutex;
use tidewaiter_api::node_identity::VERIFIED;
use tidewaiter_api::{ConditionStatus, InvalidValue, NodeName};
use tidewaiter_identity::{Claim, Identifier, Identity, NodeNames, Proven, Refusal, UnavailableCause, prove};
use tidewaiter_kit::SharedClock;
use tidewaiter_kops::{DefinitionError, Definitions, OwnedKeys};

use crate::node_controller::finding::{Finding, falls_back, given, judged, needs_tags, owned};
use crate::node_controller::observe::{Claimed, Observation};
use crate::node_controller::{LabelsFrom, Policy};
use crate::objects::Record;
use live::Live;

pub use answer::{
    ChangeExplained, ConditionExplained, EventExplained, ForeignExplained, LabelExplained, NodeExplained,
    RejectedExplained, RemovedExplained, SetExplained, TaintExplained, TreatmentExplained, VerifiedExplained,
};
pub use forgeries::{ForgeriesExplained, ForgeryExplained};

/// The dependencies of an explanation.
pub struct Explainer {
    /// Reads; it should be one that cannot write.
    pub client: Client,
    /// The definitions of the groups. Without them nothing is compared.
    pub definitions: Option<Definitions>,
    /// Resolves the identity of an instance. If absent, the record is used.
    pub cloud: Option<Arc<dyn Identifier>>,
    /// The rule for the names of Nodes, where the cloud is queried.
    pub node_names: NodeNames,
    /// The policy of the controller.
    pub policy: Policy,
    /// The source of time.
    pub clock: SharedClock,
}

/// The reason why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum ExplainError {
    /// There is no such Node.
    #[error("there is no Node {0}")]
    NoNode(NodeName),
    /// The API server does not know the records.
    #[error("this cluster has no NodeIdentity records: apply deploy/crds")]
    NoRecords,
    /// The API server does not let itself be read.
    #[error("{what} cannot be read")]
    Read {
        /// The resource that was to be read.
        what: &'static str,
        /// The error of the read.
        source: kube::Error,
    },
    /// The Node's own name or uid is not one.
    #[error("the Node cannot be read")]
    Unreadable(#[from] InvalidValue),
    /// The state store does not let itself be read.
    #[error("the definition of its group cannot be read")]
    Definition(#[source] DefinitionError),
    /// The cloud could not be asked. The refusal's own remedy is for the controller, whose credentials were not used.
    #[error("the cloud, asked with your own credentials, does not say who it is")]
    Cloud(#[source] Refusal),
}

/// The claim of a Node, as far as it is known.
enum Found {
    /// Enough for a plan.
    Finding(Finding),
    /// Not enough, and why, in words.
    Uncompared(String),
}

impl Explainer {
    /// Explains one Node.
    ///
    /// # Errors
    /// As [`ExplainError`] says. A Node that is refused, or whose group's file is missing or broken, is an answer.
    pub async fn node(&self, name: &NodeName) -> Result<NodeExplained, ExplainError> {
        let live = Live::read(&self.client).await?;
        let node = live.node(name).ok_or_else(|| ExplainError::NoNode(name.clone()))?;
        let claimed = Claimed::read(&node, live.rivals(&node))?;
        let record = live.record(name.as_str());
        let found = self.find(&claimed, record.as_deref()).await?;
        let (finding, uncompared) = match found {
            Found::Finding(finding) => (finding, None),
            Found::Uncompared(why) => (Finding::Unclaimed, Some(why)),
        };
        let verdict = uncompared.is_none().then_some(&finding);
        let seen = Observation {
            brake: live.census(name, verdict).brake(),
            name: claimed.name,
            uid: claimed.uid,
            node,
            record,
            finding,
            fresh_for: None,
            owned: self.owned().await,
            policy: self.policy,
        };
        let mut explained = describe::explain(&seen, uncompared, self.cloud.is_some(), self.clock.now());
        explained.notes.extend(live.note(name.as_str()));
        explained.notes.extend(self.notes(&seen));
        explained.events = live::events(&self.client, name).await?;
        Ok(explained)
    }

    /// Explains what quarantine would do to each Node that is refused for forgery, as the records tell it.
    ///
    /// # Errors
    /// As [`ExplainError`] says.
    pub async fn forgeries(&self) -> Result<ForgeriesExplained, ExplainError> {
        let live = Live::read(&self.client).await?;
        forgeries::explain(&live, &self.owned().await)
    }

    async fn find(&self, claimed: &Claimed, record: Option<&Record>) -> Result<Found, ExplainError> {
        let claim = match &claimed.claim {
            None => return Ok(Found::Finding(Finding::Unclaimed)),
            Some(Err(error)) => return Ok(Found::Finding(Finding::Malformed(error.clone()))),
            Some(Ok(claim)) => claim,
        };
        let proven = match &self.cloud {
            None => from_record(claim, record),
            Some(cloud) => Ok(self.ask_cloud(cloud.as_ref(), claim).await?),
        };
        match proven {
            Err(why) => Ok(Found::Uncompared(why)),
            Ok(Err(refusal)) => Ok(Found::Finding(Finding::Refused(refusal))),
            Ok(Ok(proven)) => Ok(match self.define(proven, record).await? {
                Found::Finding(finding) => Found::Finding(judged(finding, record, claim.uid.as_str(), self.policy)),
                uncompared @ Found::Uncompared(_) => uncompared,
            }),
        }
    }

    /// Returns the identity of the Node in the cloud, or its refusal.
    async fn ask_cloud(&self, cloud: &dyn Identifier, claim: &Claim) -> Result<Result<Proven, Refusal>, ExplainError> {
        let identity = ask(cloud, claim).await;
        match identity.and_then(|identity| prove(claim, Arc::new(identity), self.node_names)) {
            Err(refusal) if refusal.is_transient() => Err(ExplainError::Cloud(refusal)),
            answer => Ok(answer),
        }
    }

    async fn define(&self, proven: Proven, record: Option<&Record>) -> Result<Found, ExplainError> {
        let from = self.policy.labels_from;
        let tags_unread = self.cloud.is_none();
        let Some(definitions) = &self.definitions else {
            let why = "no definitions: set --conf, or --name and --state";
            return Ok(Found::Uncompared(why.to_owned()));
        };
        let recorded = record.map_or(&[][..], |record| &record.status.labels);
        if tags_unread && needs_tags(from, recorded) {
            let why = "labels come from the tags of the instance, which only --from-cloud reads";
            return Ok(Found::Uncompared(why.to_owned()));
        }
        match given(from, definitions, &proven, recorded).await.finding(proven) {
            Finding::Undefined(_, error) if tags_unread && falls_back(from, recorded) => {
                let why = format!("{error}; only --from-cloud shows whether tags are used instead");
                Ok(Found::Uncompared(why))
            }
            Finding::Undefined(_, error @ (DefinitionError::Unavailable { .. } | DefinitionError::Denied { .. })) => {
                Err(ExplainError::Definition(error))
            }
            finding => Ok(Found::Finding(finding)),
        }
    }

    async fn owned(&self) -> Arc<OwnedKeys> {
        match &self.definitions {
            Some(definitions) => owned(self.policy.labels_from, definitions).await,
            None => Arc::default(),
        }
    }

    fn notes(&self, seen: &Observation) -> Vec<String> {
        let tagged = |source| source == tidewaiter_api::LabelSource::InstanceTag;
        let other_source =
            self.policy.labels_from == LabelsFrom::Store && seen.recorded().iter().any(|label| tagged(label.source));
        let mut notes = Vec::new();
        if other_source {
            notes.push("the record contains labels from tags, and here they come from the state store: if the controller has another labelSource, set --label-source as it has it");
        }
        if matches!(seen.finding, Finding::Defined(..)) && !seen.owned.is_complete() {
            notes.push("the definitions of some groups are unknown, so labels of other groups may be missing here");
        }
        notes.into_iter().map(str::to_owned).collect()
    }
}

/// Returns the identity of the Node of `claim` by the record, or the reason why it is unknown. The record is the
/// controller's memory of a proof: all that is left to be proven anew is what it cannot remember, that nobody else
/// claims the instance.
fn from_record(claim: &Claim, record: Option<&Record>) -> Result<Result<Proven, Refusal>, String> {
    let Some(record) = record else {
        return Err("it has no record: the controller has not processed it yet, or is not running".to_owned());
    };
    if record.spec.node_uid != claim.uid || record.spec.provider_id != claim.provider_id.as_str() {
        return Err("its record describes an earlier Node, or an earlier providerID".to_owned());
    }
    let status = &record.status;
    let verified = status.conditions.iter().find(|condition| condition.type_ == VERIFIED);
    let told = match verified.map(|verified| (verified.status, verified.reason.as_str())) {
        Some((ConditionStatus::True, reason)) => reason,
        Some((ConditionStatus::False, "GroupChanged")) => return Err(describe::held(&claim.node)),
        Some((ConditionStatus::False, _)) => {
            return Err("it is refused: it gets no labels until the cloud confirms its identity".to_owned());
        }
        _ => return Err("the controller could not ask the cloud about it yet".to_owned()),
    };
    let (Some(instance), Some(group), Some(zone)) = (&status.instance, &status.instance_group, &status.zone) else {
        return Err("its record is incomplete".to_owned());
    };
    // By what else it may be named, the record does not say.
    let (names, rule) = if told == "NameNotEnforced" {
        (Vec::new(), NodeNames::Warn)
    } else {
        (vec![claim.node.to_string()], NodeNames::Enforce)
    };
    let identity = Identity {
        instance: instance.clone(),
        group: group.clone(),
        starting: false,
        zone: zone.clone(),
        lifecycle: status.lifecycle.unwrap_or_default(),
        names,
        addresses: claim.addresses.clone(),
        tag_labels: Vec::new(),
    };
    Ok(prove(claim, Arc::new(identity), rule))
}

/// Queries the cloud about one Node. Only the first answer counts.
async fn ask(cloud: &dyn Identifier, claim: &Claim) -> Result<Identity, Refusal> {
    let first = Mutex::new(None);
    let answers = |_place: usize, result: Result<Identity, Refusal>| {
        first.lock().get_or_insert(result);
    };
    cloud.identify(std::slice::from_ref(claim), &answers).await;
    first.into_inner().unwrap_or_else(|| {
        Err(Refusal::Unavailable {
            api: "lookup",
            cause: UnavailableCause::Unreachable,
            detail: "it gave no answer".to_owned(),
        })
    })
}

#[cfg(test)]
mod tests;
