//! Labels on a proven Node that only other groups define: they came from somewhere else.
//!
//! A key is foreign when some other group defines it, this Node's group gives it neither a value nor a rejected one,
//! and the record does not hold it: what the record holds is ours to remove anyway. A key that nobody defines is never
//! foreign.

use jiff::Timestamp;
use tidewaiter_api::names::EXCLUSIVE_ROLE_LABELS;
use tidewaiter_api::node_identity::FOREIGN_LABELS;
use tidewaiter_api::values::quoted;
use tidewaiter_api::{Condition, ConditionStatus, InstanceGroupName};
use tidewaiter_kit::Notice;
use tidewaiter_kops::NodeLabels;

use super::super::ForeignLabels;
use super::super::observation::Observation;

/// Groups that are named for one key; the others are counted.
const SHOWN: usize = 3;

/// Labels that are named; the others are counted. A kubelet can set as many as other groups define.
const LABELS_SHOWN: usize = 8;

/// The first of the keys, and how many more there are.
pub(super) fn shortened<'a>(keys: impl ExactSizeIterator<Item = &'a str>) -> String {
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
    /// found and not all groups are known, nothing can be told: what was told before stays.
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
        if self.to_remove().next().is_none() && self.is_told() {
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
    fn is_told(&self) -> bool {
        let told = self.seen.recorded_condition(FOREIGN_LABELS);
        told.is_some_and(|told| {
            let names = |label: &ForeignLabel<'_>| told.message.contains(&label.words());
            told.message == self.words() || self.labels.iter().all(names)
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
