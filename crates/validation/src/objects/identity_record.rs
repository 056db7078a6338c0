//! The result of a Node's claim in its `NodeIdentity`.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Deserializer};
use tidewaiter_api::node_identity::VERIFIED;
use tidewaiter_api::{Condition, ConditionStatus, NodeIdentity, NodeIdentitySpec, NodeIdentityStatus, ProviderId};
use tidewaiter_identity::Refusal;

use super::known;
use super::node::{Node, share};

/// A `NodeIdentity` with only the fields that a verdict reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityRecord {
    node: Arc<str>,
    node_uid: Arc<str>,
    provider_id: Option<ProviderId>,
    result: IdentityResult,
}

/// The condition `Verified` of a `NodeIdentity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdentityResult {
    /// The cloud confirms the claim.
    Proven,
    /// The claim is refused as forged.
    Forged,
    /// Neither: the claim is refused for another reason, or the cloud could not be queried. With the reason of the
    /// condition.
    Unproven(Arc<str>),
}

impl IdentityRecord {
    /// Constructs a record from the name, the spec and the status of a `NodeIdentity`.
    #[must_use]
    pub fn new(name: &str, spec: &NodeIdentitySpec, status: &NodeIdentityStatus) -> Self {
        Self {
            node: name.into(),
            node_uid: spec.node_uid.as_str().into(),
            provider_id: known(&spec.provider_id),
            result: IdentityResult::of(status),
        }
    }

    /// Holds once what it has in common with the Node.
    pub(crate) fn share_with(&mut self, node: &Node) {
        share(&mut self.node, &node.name);
        share(&mut self.node_uid, &node.uid);
        if self.provider_id == node.provider_id {
            self.provider_id.clone_from(&node.provider_id);
        }
    }

    /// The name of the Node.
    #[must_use]
    pub fn node(&self) -> &Arc<str> {
        &self.node
    }

    /// Returns true if the record is about this very Node, not about an earlier one of its name.
    pub(crate) fn is_about(&self, node: &Node) -> bool {
        *self.node == *node.name() && *self.node_uid == *node.uid()
    }

    /// Returns true if the record is about the instance that the Node claims to be.
    pub(crate) fn is_about_instance_of(&self, node: &Node) -> bool {
        self.provider_id.is_some() && self.provider_id == node.provider_id
    }

    pub(crate) fn result(&self) -> &IdentityResult {
        &self.result
    }
}

impl IdentityResult {
    /// Returns the result in a `NodeIdentity` with this status.
    #[must_use]
    pub fn of(status: &NodeIdentityStatus) -> Self {
        let verified = status.conditions.iter().find(|condition| condition.type_ == VERIFIED);
        match verified {
            Some(Condition {
                status: ConditionStatus::True,
                ..
            }) => Self::Proven,
            _ if Refusal::is_recorded_forgery(status) => Self::Forged,
            Some(condition) => Self::Unproven(condition.reason.as_str().into()),
            None => Self::Unproven("NotVerified".into()),
        }
    }
}

/// A `NodeIdentity` in a response of the API server, as [`observe`](crate::observe()) lists it.
#[derive(Clone, Debug, kube::Resource)]
#[resource(inherit = NodeIdentity)]
pub(crate) struct Listed {
    metadata: ObjectMeta,
    pub(crate) record: IdentityRecord,
}

impl<'de> Deserialize<'de> for Listed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Sent {
            #[serde(deserialize_with = "tidewaiter_kit::slim::without_labels")]
            metadata: ObjectMeta,
            spec: NodeIdentitySpec,
            #[serde(default)]
            status: NodeIdentityStatus,
        }
        let Sent { metadata, spec, status } = Sent::deserialize(deserializer)?;
        let record = IdentityRecord::new(metadata.name.as_deref().unwrap_or_default(), &spec, &status);
        Ok(Self { metadata, record })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(conditions: &Value) -> IdentityRecord {
        let sent = json!({"metadata": {"name": "n", "uid": "r", "labels": {"a": "b"}},
            "spec": {"nodeUID": "u", "providerID": "aws:///z/i-1"}, "status": {"conditions": conditions}});
        serde_json::from_value::<Listed>(sent).unwrap().record
    }

    fn verified(status: &str, reason: &str, message: &str) -> Value {
        json!([{"type": "Verified", "status": status, "reason": reason, "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    }

    #[test]
    fn only_a_confirmed_claim_is_proven_and_only_evidence_makes_it_forged() {
        let unproven = |reason: &str| IdentityResult::Unproven(reason.into());
        for (status, reason, expected) in [
            ("True", "Proven", IdentityResult::Proven),
            ("True", "NameNotEnforced", IdentityResult::Proven),
            ("False", "NameMismatch", IdentityResult::Forged),
            ("False", "NotFound", unproven("NotFound")),
            ("False", "Duplicate", unproven("Duplicate")),
            ("Unknown", "Throttled", unproven("Throttled")),
            ("Unknown", "NameMismatch", unproven("NameMismatch")),
        ] {
            let found = record(&verified(status, reason, "")).result;
            assert_eq!(found, expected, "{status} {reason}");
        }
        assert_eq!(record(&json!([])).result, unproven("NotVerified"));
    }

    #[test]
    fn a_record_is_about_one_node_and_one_claim() {
        let node = |uid: &str, provider_id: Option<&str>| -> Node {
            let node = json!({"metadata": {"name": "n", "uid": uid}, "spec": {"providerID": provider_id}});
            serde_json::from_value(node).unwrap()
        };
        let record = record(&verified("True", "Proven", ""));
        let claim = Some("aws:///z/i-1");
        assert!(record.is_about(&node("u", claim)) && record.is_about_instance_of(&node("u", claim)));
        assert!(!record.is_about(&node("v", claim)));
        assert!(!record.is_about_instance_of(&node("u", Some("aws:///z/i-2"))));
        assert!(!record.is_about_instance_of(&node("u", None)));
    }
}
