//! Decides the fate of each key that the record has to remember, and the change of the Node that follows.
//!
//! What was on the Node before us is never removed, only given back, but for the roles of other groups; and what a
//! kubelet or a cloud controller sets is never removed at all.

use std::collections::{BTreeMap, BTreeSet};

use tidewaiter_api::names::{EXCLUSIVE_ROLE_LABELS, belongs_to_others, is_observed};
use tidewaiter_api::{InstanceGroupName, LabelKey, LabelSource, LabelValue, RecordedLabel};
use tidewaiter_kit::{Notice, NoticeKind};
use tidewaiter_kops::{NodeLabels, WantedLabel};

use super::super::writes::NodePatch;
use super::foreign::shortened;
use crate::objects::Node;

/// Every key that the record has to remember, sorted into what becomes of it.
pub(super) struct Keys<'a> {
    node: &'a Node,
    /// In the definition: to be set.
    wanted: BTreeMap<LabelKey, RecordedLabel>,
    /// Recorded, and in the definition with a value that Kubernetes refuses: the last good value stays.
    held: BTreeMap<LabelKey, RecordedLabel>,
    /// Recorded, and no longer in the definition. Its removal, or the value of before, is sent also when the Node was
    /// last seen so: that may have been before the key was set, and the record may forget a key only after the API
    /// server has accepted the change of this very version of the Node.
    leaving: BTreeMap<LabelKey, RecordedLabel>,
}

/// The fate of a label that left the definition.
enum Leaving<'a> {
    Removed,
    GivenBack(&'a LabelValue),
    /// The label stays as it is.
    Left,
}

impl<'a> Keys<'a> {
    pub(super) fn of(node: &'a Node, recorded: &[RecordedLabel], labels: &NodeLabels) -> Self {
        let mut old: BTreeMap<_, _> = recorded.iter().map(|label| (label.key.clone(), label)).collect();
        let wanted = labels.wanted.iter().map(|label| {
            let before = match old.remove(&label.key) {
                Some(recorded) => recorded.before.clone(),
                None => present(node, label.key.as_str()),
            };
            (label.key.clone(), recorded_label(label, before))
        });
        let wanted = wanted.collect();
        let rejected: BTreeSet<&str> = labels.rejected.iter().map(|label| label.key.as_str()).collect();
        let (held, leaving) = old
            .into_iter()
            .map(|(key, label)| (key, label.clone()))
            .partition(|(key, _)| rejected.contains(key.as_str()));
        Self {
            node,
            wanted,
            held,
            leaving,
        }
    }

    pub(super) fn staying(&self) -> impl Iterator<Item = &RecordedLabel> {
        self.wanted.values().chain(self.held.values())
    }

    pub(super) fn all(&self) -> Vec<RecordedLabel> {
        self.staying().chain(self.leaving.values()).cloned().collect()
    }

    /// The change of the Node: only what differs. What is `foreign` goes too.
    pub(super) fn patch<'b>(&'b self, foreign: impl Iterator<Item = &'b str>) -> Option<NodePatch> {
        let present = self.node.labels();
        let wanted = self
            .wanted
            .values()
            .filter(|label| present.get(label.key.as_str()).map(String::as_str) != Some(label.value.as_str()))
            .map(|label| (label.key.clone(), label.value.clone()));
        let patch = NodePatch {
            set: wanted.chain(self.given_back()).collect(),
            remove: self.removed().chain(foreign).map(str::to_owned).collect(),
            taints: self.node.taints_without_startup_taint(),
        };
        (patch != NodePatch::default()).then_some(patch)
    }

    /// Returns the Event about labels that the patch removes from the Node, or restores.
    pub(super) fn notice(&self, group: &InstanceGroupName) -> Option<Notice> {
        let labels = self.node.labels();
        let removed: BTreeSet<&str> = self.removed().filter(|key| labels.contains_key(*key)).collect();
        let differs = |(key, value): &(LabelKey, LabelValue)| {
            labels.get(key.as_str()).map(String::as_str) != Some(value.as_str())
        };
        let given_back: Vec<LabelKey> = self.given_back().filter(differs).map(|(key, _)| key).collect();
        let said = [
            ("removed", shortened(removed.into_iter())),
            (
                "gave back the former value of",
                shortened(given_back.iter().map(LabelKey::as_str)),
            ),
        ];
        let said: Vec<String> = said
            .into_iter()
            .filter(|(_, keys)| !keys.is_empty())
            .map(|(what, keys)| format!("{what} {keys}"))
            .collect();
        let is_of_tags = self
            .wanted
            .values()
            .any(|label| label.source == LabelSource::InstanceTag);
        let who = if is_of_tags {
            "The tags of the instance do".to_owned()
        } else {
            format!("Group {group} does")
        };
        (!said.is_empty()).then(|| Notice {
            kind: NoticeKind::Normal,
            reason: "LabelsRemoved".into(),
            action: "Label".into(),
            note: format!("{who} not define these labels: {}.", said.join("; ")),
        })
    }

    /// The keys that go, on the Node or not.
    fn removed(&self) -> impl Iterator<Item = &str> {
        let roles = EXCLUSIVE_ROLE_LABELS.into_iter().filter(|role| {
            self.node.labels().contains_key(*role) && !self.staying().any(|label| label.key.as_str() == *role)
        });
        let gone = |label: &&RecordedLabel| matches!(leaving(label), Leaving::Removed);
        let leaving = self.leaving.values().filter(gone).map(|label| label.key.as_str());
        leaving.chain(roles)
    }

    fn given_back(&self) -> impl Iterator<Item = (LabelKey, LabelValue)> {
        self.leaving.values().filter_map(|label| match leaving(label) {
            Leaving::GivenBack(value) => Some((label.key.clone(), value.clone())),
            Leaving::Removed | Leaving::Left => None,
        })
    }
}

fn leaving(label: &RecordedLabel) -> Leaving<'_> {
    let key = label.key.as_str();
    match &label.before {
        _ if EXCLUSIVE_ROLE_LABELS.contains(&key) => Leaving::Removed,
        // An earlier version took such keys.
        _ if belongs_to_others(key) => Leaving::Left,
        Some(before) => Leaving::GivenBack(before),
        None if is_observed(key) => Leaving::Left,
        None => Leaving::Removed,
    }
}

fn present(node: &Node, key: &str) -> Option<LabelValue> {
    node.labels().get(key)?.parse().ok()
}

fn recorded_label(label: &WantedLabel, before: Option<LabelValue>) -> RecordedLabel {
    RecordedLabel {
        key: label.key.clone(),
        value: label.value.clone(),
        source: label.source,
        file: label.file.clone(),
        before,
    }
}
