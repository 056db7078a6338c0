//! What becomes of each key that the record has to remember, and the change of the Node that follows.

use std::collections::{BTreeMap, BTreeSet};

use tidewaiter_api::names::EXCLUSIVE_ROLE_LABELS;
use tidewaiter_api::{LabelKey, RecordedLabel};
use tidewaiter_kops::{NodeLabels, WantedLabel};

use super::super::writes::NodePatch;
use crate::objects::Node;

/// Every key that the record has to remember, sorted into what becomes of it.
pub(super) struct Keys {
    /// In the definition: to be set.
    wanted: BTreeMap<LabelKey, RecordedLabel>,
    /// Recorded, and in the definition with a value that Kubernetes refuses: the last good value stays.
    held: BTreeMap<LabelKey, RecordedLabel>,
    /// Recorded, and no longer in the definition: to be removed. The removal is sent also when the Node was last seen
    /// without the key: that may have been before it was set, and the record may forget a key only after the API server
    /// has accepted its removal from this very version of the Node.
    leaving: BTreeMap<LabelKey, RecordedLabel>,
}

impl Keys {
    pub(super) fn of(recorded: &[RecordedLabel], labels: &NodeLabels) -> Self {
        let wanted: BTreeMap<_, _> = labels
            .wanted
            .iter()
            .map(|label| (label.key.clone(), recorded_label(label)))
            .collect();
        let rejected: BTreeSet<&str> = labels.rejected.iter().map(|label| label.key.as_str()).collect();
        let old = recorded.iter().filter(|label| !wanted.contains_key(&label.key));
        let (held, leaving) = old
            .map(|label| (label.key.clone(), label.clone()))
            .partition(|(key, _)| rejected.contains(key.as_str()));
        Self { wanted, held, leaving }
    }

    pub(super) fn staying(&self) -> impl Iterator<Item = &RecordedLabel> {
        self.wanted.values().chain(self.held.values())
    }

    pub(super) fn all(&self) -> Vec<RecordedLabel> {
        self.staying().chain(self.leaving.values()).cloned().collect()
    }

    /// The change of `node`: only what differs. What is `foreign` goes too.
    pub(super) fn patch<'a>(&'a self, node: &'a Node, foreign: impl Iterator<Item = &'a str>) -> Option<NodePatch> {
        let present = node.labels();
        let set = self
            .wanted
            .values()
            .filter(|label| present.get(label.key.as_str()).map(String::as_str) != Some(label.value.as_str()))
            .map(|label| (label.key.clone(), label.value.clone()))
            .collect();
        let roles = EXCLUSIVE_ROLE_LABELS
            .into_iter()
            .filter(|role| present.contains_key(*role) && !self.staying().any(|label| label.key.as_str() == *role));
        let remove = self
            .leaving
            .keys()
            .map(LabelKey::as_str)
            .chain(roles)
            .chain(foreign)
            .map(str::to_owned)
            .collect();
        let patch = NodePatch {
            set,
            remove,
            taints: node.taints_without_startup_taint(),
        };
        (patch != NodePatch::default()).then_some(patch)
    }
}

fn recorded_label(label: &WantedLabel) -> RecordedLabel {
    RecordedLabel {
        key: label.key.clone(),
        value: label.value.clone(),
        source: label.source,
        file: label.file.clone(),
    }
}
