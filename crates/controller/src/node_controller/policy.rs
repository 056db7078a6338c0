//! The operator's policy: the source of labels, and the handling of labels of other groups and of forged Nodes.

use serde::{Deserialize, Serialize};

/// The handling of a label on a proven Node whose key only other groups define.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignLabels {
    /// Publish an Event and keep the label.
    #[default]
    Report,
    /// Remove the label.
    Remove,
}

/// The handling of a Node that is refused for forgery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnForgery {
    /// Publish an Event and leave the Node as it is.
    #[default]
    Report,
    /// Remove the labels that only a proven Node may have, and taint the Node, unless the brake holds.
    Quarantine,
}

/// The source of the labels of a proven Node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelsFrom {
    /// The definition of its group in the state store.
    #[default]
    Store,
    /// The tags of its instance. The state store is not read at all, so nobody knows which labels are other groups'.
    Tags,
    /// The state store; the tags where there never was a definition, neither since the start nor, as the record tells,
    /// for this Node.
    StoreThenTags,
    /// The tags. The state store if the instance has none, if the tags differ from the labels that the Node has from
    /// files, or if its group has changed.
    TagsThenStore,
    /// The tags where they gave the Node all that its record has; else as [`StoreThenTags`](Self::StoreThenTags). So
    /// no Node changes sides while it is not known which one the operator's kOps is on.
    AsRecorded,
}

/// The handling of a Node whose instance is in another group than the one for which it was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnGroupChange {
    /// Publish an Event and keep the labels of the old group.
    #[default]
    Hold,
    /// Give it the labels of the new group; a worker's Node never gets those of a group of the control plane.
    Follow,
}

/// The operator's policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// The source of labels.
    pub labels_from: LabelsFrom,
    /// The handling of labels of other groups.
    pub foreign_labels: ForeignLabels,
    /// The handling of forged Nodes.
    pub on_forgery: OnForgery,
    /// About Nodes whose group has changed.
    pub on_group_change: OnGroupChange,
}
