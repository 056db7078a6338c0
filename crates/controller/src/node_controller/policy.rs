//! What the operator wants done beyond labelling: about labels of other groups, and about forged Nodes.

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

/// Both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// About labels of other groups.
    pub foreign_labels: ForeignLabels,
    /// About forged Nodes.
    pub on_forgery: OnForgery,
}
