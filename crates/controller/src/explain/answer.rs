//! The answer about one Node. Text that others wrote into an object is escaped.

use jiff::Timestamp;
use serde::Serialize;
use tidewaiter_api::{ConditionStatus, LabelSource, Lifecycle};

/// The reason for the labels of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeExplained {
    /// The Node.
    pub node: String,
    /// The instance that it claims to be.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub provider_id: String,
    /// The source of what follows: `record`, or `cloud` when it was asked just now.
    pub asked: &'static str,
    /// The instance that it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instance: Option<String>,
    /// Its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Its zone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The billing of the instance.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lifecycle: Option<Lifecycle>,
    /// The proof of its identity by the cloud.
    pub verified: VerifiedExplained,
    /// The labels that are Tidewaiter's: those of the definition where it was compared, else those of the record.
    pub labels: Vec<LabelExplained>,
    /// Labels of the definition that cannot be set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rejected: Vec<RejectedExplained>,
    /// Labels that only other groups define.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub foreign: Vec<ForeignExplained>,
    /// The number of other labels of the Node.
    pub others: usize,
    /// The effect of `onForgery: quarantine`, if it is refused for forgery.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub quarantine: Option<TreatmentExplained>,
    /// The conditions of the record besides `Verified`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<ConditionExplained>,
    /// The writes of a pass of the controller now.
    pub change: ChangeExplained,
    /// Notes on this answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// The last Events about the Node and its record.
    pub events: Vec<EventExplained>,
}

/// The result of a Node's verification by the cloud.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct VerifiedExplained {
    /// `True`, `False`, `Unknown`.
    pub status: ConditionStatus,
    /// The reason, in one word.
    pub reason: String,
    /// In words, with what to do about it.
    pub message: String,
}

/// A label that is Tidewaiter's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LabelExplained {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// The source of the label.
    pub source: LabelSource,
    /// The file of the state store; empty when it follows from the instance alone.
    pub file: String,
    /// Its value on the Node now; absent when the Node has no such label.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub on_node: Option<String>,
}

/// A label of the definition that cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RejectedExplained {
    /// Its key.
    pub key: String,
    /// Its value, as it can be shown.
    pub value: String,
    /// The source of the label.
    pub source: LabelSource,
    /// The file of the state store; empty when it is a tag.
    pub file: String,
    /// The field of that file, or the tag.
    pub field: String,
    /// The reason.
    pub reason: String,
}

/// A label that only other groups define.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignExplained {
    /// Its key.
    pub key: String,
    /// The groups that define it.
    pub groups: Vec<String>,
}

/// A condition of the record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ConditionExplained {
    /// The type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False`, `Unknown`.
    pub status: ConditionStatus,
    /// The reason, in one word.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// The writes of a pass of the controller now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ChangeExplained {
    /// True if it could be found out; else nothing else here says anything.
    pub compared: bool,
    /// True if anything would be written.
    pub differs: bool,
    /// The reason why it was not compared, or why labels are left as they are.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// Labels that would be set.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<SetExplained>,
    /// Labels that would be removed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<RemovedExplained>,
    /// The change of the startup taint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub taint: Option<TaintExplained>,
    /// True if the record would be written.
    pub record: bool,
}

/// A label that would be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SetExplained {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
}

/// A label that would be removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RemovedExplained {
    /// Its key.
    pub key: String,
    /// The reason, as text.
    pub why: String,
}

/// The change of the startup taint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum TaintExplained {
    /// The Node gets it.
    Set,
    /// The Node loses it.
    Lifted,
}

/// An Event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EventExplained {
    /// The time at which it was last seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seen: Option<Timestamp>,
    /// `Node` or `NodeIdentity`.
    pub about: String,
    /// `Normal` or `Warning`.
    #[serde(rename = "type")]
    pub type_: String,
    /// The reason, in one word.
    pub reason: String,
    /// The message.
    pub message: String,
}

/// The effect of `onForgery: quarantine` on a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TreatmentExplained {
    /// `quarantined`, `spared`, `held`, `waiting`: as the metric `tidewaiter_forged_nodes` has it.
    pub decision: &'static str,
    /// The reason, as text.
    pub why: String,
    /// The labels that it loses.
    pub labels: Vec<String>,
    /// True if it gets the taint.
    pub taint: bool,
}
