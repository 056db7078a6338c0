//! The writes of the NodeController: the content of a record, and the change of a Node.

use std::collections::{BTreeMap, BTreeSet};

use tidewaiter_api::{LabelKey, LabelValue, NodeIdentitySpec, NodeIdentityStatus};

/// The content of a record; its name and owner follow from the Node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct RecordContent {
    /// The claim of the Node.
    pub spec: NodeIdentitySpec,
    /// The result of its verification.
    pub status: NodeIdentityStatus,
}

/// The keys of a Node that differ from what they should be.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct NodePatch {
    /// Labels to set.
    pub set: BTreeMap<LabelKey, LabelValue>,
    /// Labels to remove.
    pub remove: BTreeSet<String>,
    /// All taints as they are to be, when the startup taint is to be removed or added.
    pub taints: Option<Vec<serde_json::Value>>,
}
