//! What the operator wants: where labels come from, and what is done beyond labelling, about labels of other groups and about
//! forged Nodes.

use serde::{Deserialize, Serialize};

/// What becomes of a label on a proven Node whose key only other groups define.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ForeignLabels {
    /// Somebody is told, and it stays.
    #[default]
    Report,
    /// It goes.
    Remove,
}

/// What becomes of a Node that is refused for forgery.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnForgery {
    /// Somebody is told, and it stays as it is.
    #[default]
    Report,
    /// It loses what only a proven Node may have, and gets no pod, unless the brake holds.
    Quarantine,
}

/// Where the labels of a proven Node come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LabelsFrom {
    /// What the state store defines for its group.
    #[default]
    Store,
    /// The tags of its instance. The state store is not read at all, so nobody knows which labels are other groups'.
    Tags,
    /// The state store; the tags where there never was a definition, neither since the start nor, as the record tells, for
    /// this Node.
    StoreThenTags,
    /// The tags. The state store if the instance has none, if the tags differ from the labels that the Node has from
    /// files, or if its group has changed.
    TagsThenStore,
    /// The tags where they gave the Node all that its record has; else as [`StoreThenTags`](Self::StoreThenTags). So
    /// no Node changes sides while it is not known which one the operator's kOps is on.
    AsRecorded,
}

/// What becomes of a Node whose instance is in another group than the one for which it was verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnGroupChange {
    /// Somebody is told, and it keeps what it has.
    #[default]
    Hold,
    /// It gets the labels of the new group, but for a worker's Node and a group of the control plane.
    Follow,
}

/// All of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// Where labels come from.
    pub labels_from: LabelsFrom,
    /// About labels of other groups.
    pub foreign_labels: ForeignLabels,
    /// About forged Nodes.
    pub on_forgery: OnForgery,
    /// About Nodes whose group has changed.
    pub on_group_change: OnGroupChange,
}
