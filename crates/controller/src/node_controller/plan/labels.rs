//! Decides the fate of each label: of the keys that the record has to remember, with the change of the Node that
//! follows, and of the labels on a proven Node that only other groups define.
//!
//! A label that was on the Node before us is never removed, only given back, but for the roles of other groups; and one
//! that a kubelet or a cloud controller sets is never removed at all.
//!
//! A key is foreign when some other group defines it, this Node's group gives it neither a value nor a rejected one,
//! and the record does not hold it: what the record holds is ours to remove anyway. A key without a definition is never
//! foreign.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use tidewaiter_api::names::{EXCLUSIVE_ROLE_LABELS, belongs_to_others, is_observed};
use tidewaiter_api::node_identity::FOREIGN_LABELS;
use tidewaiter_api::values::quoted;
use tidewaiter_api::{Condition, ConditionStatus, InstanceGroupName, LabelKey, LabelSource, LabelValue, RecordedLabel};
use tidewaiter_kit::{Notice, NoticeKind};
use tidewaiter_kops::{NodeLabels, WantedLabel};

use crate::node_controller::finding::ForeignLabels;
use crate::node_controller::observe::Observation;
use crate::node_controller::record::NodePatch;
use crate::objects::Node;

/// Groups that are named for one key; the others are counted.
const SHOWN: usize = 3;

/// Labels that are named; the others are counted. A kubelet can set as many as other groups define.
const LABELS_SHOWN: usize = 8;

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
        let clauses = [
            ("removed", shortened(removed.into_iter())),
            (
                "gave back the former value of",
                shortened(given_back.iter().map(LabelKey::as_str)),
            ),
        ];
        let clauses: Vec<String> = clauses
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
        (!clauses.is_empty()).then(|| Notice {
            kind: NoticeKind::Normal,
            reason: "LabelsRemoved".into(),
            action: "Label".into(),
            note: format!("{who} not define these labels: {}.", clauses.join("; ")),
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

/// The first of the keys, and how many more there are.
fn shortened<'a>(keys: impl ExactSizeIterator<Item = &'a str>) -> String {
    let more = keys.len().saturating_sub(LABELS_SHOWN);
    let mut words: Vec<String> = keys.take(LABELS_SHOWN).map(str::to_owned).collect();
    words.extend((more > 0).then(|| format!("and {more} more")));
    words.join(", ")
}

/// A label that is not this Node's.
pub(crate) struct ForeignLabel<'a> {
    pub(crate) key: &'a str,
    /// Never empty.
    pub(crate) owners: Vec<&'a InstanceGroupName>,
}

/// The labels of a Node whose keys only other groups define.
pub(crate) struct Foreign<'a> {
    seen: &'a Observation,
    group: &'a InstanceGroupName,
    pub(crate) labels: Vec<ForeignLabel<'a>>,
}

impl<'a> Foreign<'a> {
    /// The foreign labels of the Node, which is proven to be of `group`, whose definition gives it `given`.
    pub(crate) fn of(seen: &'a Observation, group: &'a InstanceGroupName, given: &NodeLabels) -> Self {
        let is_given = |key: &str| {
            given.wanted.iter().any(|label| label.key.as_str() == key)
                || given.rejected.iter().any(|label| label.key == key)
        };
        let is_recorded = |key: &str| seen.recorded().iter().any(|label| label.key.as_str() == key);
        let keys = seen.node.labels().keys().map(String::as_str);
        // The exclusive roles go no matter who set them.
        let others = keys.filter(|key| !EXCLUSIVE_ROLE_LABELS.contains(key) && !is_given(key) && !is_recorded(key));
        let foreign = others.filter_map(|key| {
            let owners: Vec<_> = seen.owned.groups_of(key).collect();
            // A definition that has just gained the key is on its way.
            (!owners.is_empty() && !owners.contains(&group)).then_some(ForeignLabel { key, owners })
        });
        Self {
            seen,
            group,
            labels: foreign.collect(),
        }
    }

    pub(super) fn count(&self) -> usize {
        self.labels.len()
    }

    /// The keys that the patch takes away.
    pub(super) fn to_remove(&self) -> impl Iterator<Item = &str> {
        let remove = self.seen.policy.foreign_labels == ForeignLabels::Remove;
        self.labels.iter().filter(move |_| remove).map(|label| label.key)
    }

    /// Returns the condition while the labels are on the Node, and the condition after the patch. Where nothing was
    /// found and not all groups are known, the recorded condition stays.
    pub(super) fn conditions(&self, now: Timestamp) -> (Option<Condition>, Option<Condition>) {
        let none = || {
            let words = "no label is defined by other groups alone";
            let seen = self.seen;
            Some(seen.condition(FOREIGN_LABELS, ConditionStatus::False, "NoneFound", words, now))
        };
        let before = match (self.labels.is_empty(), self.seen.owned.is_complete()) {
            (true, true) => none(),
            (true, false) => self.seen.recorded_condition(FOREIGN_LABELS).cloned(),
            (false, _) => Some(self.seen.condition(
                FOREIGN_LABELS,
                ConditionStatus::True,
                "DefinedByOtherGroups",
                &self.words(),
                now,
            )),
        };
        let after = match self.to_remove().next() {
            Some(_) if self.seen.owned.is_complete() => none(),
            Some(_) => None,
            None => before.clone(),
        };
        (before, after)
    }

    /// The Event to publish; none about labels that stay and that the record names already.
    pub(super) fn notice(&self) -> Option<Notice> {
        if self.to_remove().next().is_none() && self.is_recorded() {
            return None;
        }
        let remedy = match self.seen.policy.foreign_labels {
            ForeignLabels::Report => "Find out who set it, and remove it; foreignLabels: remove does so by itself.",
            ForeignLabels::Remove => "It was removed; if it comes back, find out who sets it.",
        };
        let note = || format!("{}; this Node is of group {}. {remedy}", self.words(), self.group);
        (!self.labels.is_empty()).then(|| Notice::warning("ForeignLabel", "Label", note()))
    }

    /// Returns true if the record names each label, or says the same of more labels than it can name.
    fn is_recorded(&self) -> bool {
        let recorded = self.seen.recorded_condition(FOREIGN_LABELS);
        recorded.is_some_and(|recorded| {
            let names = |label: &ForeignLabel<'_>| recorded.message.contains(&label.words());
            recorded.message == self.words() || self.labels.iter().all(names)
        })
    }

    fn words(&self) -> String {
        let words: Vec<String> = self.labels.iter().take(LABELS_SHOWN).map(ForeignLabel::words).collect();
        match self.labels.len().saturating_sub(LABELS_SHOWN) {
            0 => words.join("; "),
            more => format!("{}; and {more} more", words.join("; ")),
        }
    }
}

impl ForeignLabel<'_> {
    fn words(&self) -> String {
        let names: Vec<&str> = self.owners.iter().take(SHOWN).map(|name| name.as_str()).collect();
        let more = match self.owners.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("label {} is defined by {}{more}", quoted(self.key), names.join(", "))
    }
}
