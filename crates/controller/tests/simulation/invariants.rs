//! The invariants of every write, whatever fails.
//!
//! - A replica sends a write only while it holds the Lease.
//! - A label is set only on a Node that is the instance it claims to be, and whose instance was running in the label's
//!   group no longer ago than an answer of the cloud may be cached; its key is recorded first.
//! - From a proven Node, only recorded keys and roles are removed, or with `foreignLabels: remove` the keys that groups
//!   define; from other Nodes, labels are removed only in quarantine.
//! - A record keeps every key that we have set and that is still on the Node.
//! - What was there before us is there after us: a label with which a Node was created is on record with its value when
//!   we take its key, and its key is not removed as ours, only given back. What a kubelet set is never removed.
//! - A Node stays in the group for which it was verified, unless the setting has it follow its instance; the Node of a
//!   worker never becomes one of the control plane. The group that its label names is that of the record.
//! - The startup taint is added only in quarantine, and removed only with a proof.
//! - No other field of a Node is changed. No write is a no-op, except a patch that confirms that a recorded key is
//!   absent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::Value;
use tidewaiter_api::names::{EXCLUSIVE_ROLE_LABELS, INSTANCE_GROUP_LABEL, UNIDENTIFIED_TAINT, is_observed};
use tidewaiter_controller::node_controller::{ForeignLabels, OnForgery, OnGroupChange, Policy};
use tidewaiter_testkit::sim::{Faults, Objects, Observer, Verb, Write};

use crate::role::{EXPIRY, LEASE, LEASE_NAMESPACE};
use crate::truth::{GROUPS, Labels, Truth, address, claimed, node_name};

/// The prefix of every replica's name.
pub const REPLICA: &str = "replica-";

/// The maximum time from the query of the cloud to the write that depends on the answer: a silent call, waiting for
/// leadership or a permit, and the latency of the write.
const UNDER_WAY: Duration = Duration::from_mins(3).saturating_add(Faults::SLOW);

/// The writer of a label's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setter {
    Us,
    Others,
}

/// The observations so far. Clones share them.
#[derive(Clone, Debug)]
pub struct Invariants {
    pub truth: Arc<Mutex<Truth>>,
    pub policy: Policy,
    pub traces: bool,
    pub seen: Arc<Mutex<Seen>>,
}

#[derive(Debug, Default)]
pub struct Seen {
    pub violations: Vec<String>,
    /// By the Node's uid: the labels that it was created with, and that nobody has changed since nor we have recorded.
    pub created: BTreeMap<String, Labels>,
    /// By the Node's uid: those of them whose keys are on record.
    pub before: BTreeMap<String, Labels>,
    /// By the Node's uid and the key.
    pub setters: BTreeMap<String, BTreeMap<String, Setter>>,
    /// By uid of the Node: when a user deleted its record, and the keys that the record held.
    pub deleted: BTreeMap<String, (Duration, BTreeSet<String>)>,
    /// The uids that a record has ever marked as verified.
    pub verified: BTreeSet<String>,
    /// By the Node's uid: the name of the group for which it is verified, as its record says.
    pub groups: BTreeMap<String, String>,
}

pub fn labels(object: &Value) -> Labels {
    serde_json::from_value(object["metadata"]["labels"].clone()).unwrap_or_default()
}

fn uid(object: &Value) -> &str {
    object["metadata"]["uid"].as_str().unwrap_or_default()
}

/// The number of the instance that a Node claims, if its name and its addresses match.
pub fn instance(node: &Value) -> Option<usize> {
    let number = claimed(node["spec"]["providerID"].as_str()?)?;
    let addresses: Vec<&Value> = node["status"]["addresses"].as_array().into_iter().flatten().collect();
    let own = address(number).to_string();
    let named = node["metadata"]["name"] == node_name(number);
    let fits = addresses.is_empty() || addresses.iter().any(|one| one["address"] == own);
    (named && fits).then_some(number)
}

/// Returns true if a Node claims an existing instance that it is not.
pub fn is_forged(node: &Value) -> bool {
    node["spec"]["providerID"].as_str().and_then(claimed).is_some() && instance(node).is_none()
}

/// Returns true if the Node has the startup taint, and all other taints.
pub fn taints(node: &Value) -> (bool, Vec<&Value>) {
    let all = node["spec"]["taints"].as_array().map_or(&[][..], Vec::as_slice);
    let others: Vec<&Value> = all.iter().filter(|taint| taint["key"] != UNIDENTIFIED_TAINT).collect();
    (others.len() < all.len(), others)
}

/// The recorded keys of the Node with this uid.
pub fn recorded<'a>(record: Option<&'a Value>, uid: &str) -> BTreeSet<&'a str> {
    let record = record.filter(|record| record["spec"]["nodeUID"] == uid);
    let labels = record.and_then(|record| record["status"]["labels"].as_array());
    labels
        .into_iter()
        .flatten()
        .filter_map(|label| label["key"].as_str())
        .collect()
}

pub fn condition<'a>(record: &'a Value, name: &str) -> &'a Value {
    let conditions = record["status"]["conditions"].as_array().map_or(&[][..], Vec::as_slice);
    let found = conditions.iter().find(|condition| condition["type"] == name);
    found.unwrap_or(&Value::Null)
}

/// The values that recorded keys of the Node with this uid had before.
fn recorded_before(record: Option<&Value>, uid: &str) -> Labels {
    let record = record.filter(|record| record["spec"]["nodeUID"] == uid);
    let all = record.and_then(|record| record["status"]["labels"].as_array());
    let text = |value: &Value| value.as_str().map(str::to_owned);
    all.into_iter()
        .flatten()
        .filter_map(|label| text(&label["key"]).zip(text(&label["before"])))
        .collect()
}

/// Returns true if a no-op patch confirms that a recorded key is absent, or as before: only then the record may forget
/// it.
fn confirms_a_removal(write: &Write, objects: Objects<'_>) -> bool {
    let Some(node) = write.after().filter(|_| write.resource == "nodes") else {
        return false;
    };
    let there = labels(node);
    let record = objects.get("nodeidentities", "", &write.name);
    let before = recorded_before(record, uid(node));
    let held = recorded(record, uid(node));
    held.into_iter()
        .any(|key| !there.contains_key(key) || before.get(key) == there.get(key))
}

impl Observer for Invariants {
    fn sent(&mut self, by: &str, verb: Verb, resource: &str, objects: Objects<'_>) {
        if resource == "leases" {
            return;
        }
        let lease = objects.get("leases", LEASE_NAMESPACE, LEASE);
        let holder = lease
            .and_then(|lease| lease["spec"]["holderIdentity"].as_str())
            .unwrap_or_default();
        if holder != by {
            self.violated(format!(
                "{by} gives out a {} of {resource} while {holder:?} leads",
                verb.as_str()
            ));
        }
    }

    fn written(&mut self, write: &Write, objects: Objects<'_>) {
        if self.traces && write.resource != "leases" {
            println!("{write}");
        }
        if !write.is_accepted() {
            return;
        }
        let ours = write.by.starts_with(REPLICA);
        if ours && !write.has_changed() && !confirms_a_removal(write, objects) {
            self.violated(format!("a write that changes nothing: {write}"));
        }
        match write.resource.as_str() {
            "nodes" => self.node(write, ours, objects),
            "nodeidentities" => self.record(write, objects),
            _ => {}
        }
    }
}

impl Invariants {
    pub fn violated(&self, what: String) {
        if self.traces {
            println!("VIOLATED: {what}");
        }
        self.seen.lock().unwrap().violations.push(what);
    }

    fn node(&self, write: &Write, ours: bool, objects: Objects<'_>) {
        let Some(after) = write.after() else {
            let gone = uid(write.before().unwrap());
            let mut seen = self.seen.lock().unwrap();
            seen.setters.remove(gone);
            seen.created.remove(gone);
            seen.before.remove(gone);
            return;
        };
        let (old, new) = (write.before().map(labels).unwrap_or_default(), labels(after));
        if ours {
            self.patch(write, objects);
        }
        let before = recorded_before(objects.get("nodeidentities", "", &write.name), uid(after));
        let mut seen = self.seen.lock().unwrap();
        if write.before().is_none() {
            seen.created.insert(uid(after).to_owned(), new.clone());
        } else {
            let created = seen.created.entry(uid(after).to_owned()).or_default();
            created.retain(|key, value| new.get(key) == Some(value));
        }
        let setters = seen.setters.entry(uid(after).to_owned()).or_default();
        setters.retain(|key, _| new.contains_key(key));
        for (key, value) in &new {
            // What is given back is theirs.
            let theirs = !ours || before.get(key) == Some(value);
            if old.get(key) != Some(value) {
                setters.insert(key.clone(), if theirs { Setter::Others } else { Setter::Us });
            }
        }
    }

    fn patch(&self, write: &Write, objects: Objects<'_>) {
        let (Some(before), Some(after)) = (write.before(), write.after()) else {
            self.violated(format!("a Node is made or deleted: {write}"));
            return;
        };
        let proven = instance(before);
        let record = objects.get("nodeidentities", "", &write.name);
        let mut recorded = recorded(record, uid(before));
        // The patch may have been sent before a user deleted the record.
        let deleted = self.seen.lock().unwrap().deleted.get(uid(before)).cloned();
        if let Some((at, keys)) = &deleted
            && write.at <= *at + UNDER_WAY
        {
            recorded.extend(keys.iter().map(String::as_str));
        }
        let before_us = recorded_before(record, uid(before));
        let quarantined = self.may_quarantine(before);
        let (old, new) = (labels(before), labels(after));
        for (key, value) in new.iter().filter(|(key, value)| old.get(*key) != Some(*value)) {
            let given_back = before_us.get(key) == Some(value);
            let group = self.seen.lock().unwrap().groups.get(uid(before)).cloned();
            if key == INSTANCE_GROUP_LABEL && !given_back && group.is_some_and(|group| group != *value) {
                self.violated(format!(
                    "{key}={value} is not the group for which it is verified: {write}"
                ));
            }
            if !proven.is_some_and(|number| given_back || self.was_given(number, key, value, write.at)) {
                self.violated(format!("{key}={value} is set without a proof: {write}"));
            }
            if !recorded.contains(key.as_str()) {
                self.violated(format!("{key} is set before the record holds it: {write}"));
            }
        }
        for key in old.keys().filter(|key| !new.contains_key(*key)) {
            let removes = self.policy.foreign_labels == ForeignLabels::Remove && Truth::is_definable(key);
            let role = EXCLUSIVE_ROLE_LABELS.contains(&key.as_str());
            let ours = proven.is_some() && (role || recorded.contains(key.as_str()) || removes);
            let cleaned = quarantined && Truth::is_definable(key);
            if !(ours || cleaned) || is_observed(key) {
                self.violated(format!("{key} is not ours to remove: {write}"));
            }
            let first = self.seen.lock().unwrap().before.get(uid(before)).cloned();
            if !(role || cleaned) && first.is_some_and(|first| first.contains_key(key)) {
                self.violated(format!("{key} was there before us: {write}"));
            }
        }
        let ((was, others_before), (is, others_after)) = (taints(before), taints(after));
        if others_before != others_after {
            self.violated(format!("the taints of others are touched: {write}"));
        }
        if !was && is && !quarantined {
            self.violated(format!("the startup taint comes outside of quarantine: {write}"));
        }
        if was && !is && proven.is_none() {
            self.violated(format!("the startup taint goes without a proof: {write}"));
        }
        if before["status"] != after["status"] {
            self.violated(format!("the status is touched: {write}"));
        }
    }

    /// Returns true if the Node of an instance may get a label, given the groups of the instance within the cache
    /// expiry.
    fn was_given(&self, number: usize, key: &str, value: &str, now: Duration) -> bool {
        let truth = self.truth.lock().unwrap();
        let since = now.saturating_sub(EXPIRY + UNDER_WAY);
        truth
            .groups_since(number, since)
            .any(|group| truth.was_given(group, key, value))
    }

    fn may_quarantine(&self, node: &Value) -> bool {
        let verified = self.seen.lock().unwrap().verified.contains(uid(node));
        self.policy.on_forgery == OnForgery::Quarantine && is_forged(node) && !verified
    }

    /// A user deleted a record: the labels in it no longer count as set by us.
    fn forgotten(&self, write: &Write) {
        let record = write.before();
        let owner = record
            .and_then(|record| record["spec"]["nodeUID"].as_str())
            .unwrap_or_default();
        let keys = recorded(record, owner).into_iter().map(str::to_owned).collect();
        let mut seen = self.seen.lock().unwrap();
        seen.deleted.insert(owner.to_owned(), (write.at, keys));
        seen.verified.remove(owner);
        seen.groups.remove(owner);
        seen.before.remove(owner);
        for setter in seen.setters.get_mut(owner).into_iter().flat_map(BTreeMap::values_mut) {
            *setter = Setter::Others;
        }
    }

    /// Checks the record of the Node `owner`: the labels with which the Node was created.
    fn before(&self, write: &Write, after: &Value, owner: &str) {
        let (held, said) = (recorded(Some(after), owner), recorded_before(Some(after), owner));
        let mut seen = self.seen.lock().unwrap();
        let Seen { created, before, .. } = &mut *seen;
        let (created, before) = (
            created.entry(owner.to_owned()).or_default(),
            before.entry(owner.to_owned()).or_default(),
        );
        before.retain(|key, _| held.contains(key.as_str()));
        before.extend(created.extract_if(.., |key, _| held.contains(key.as_str())));
        let wrong: Vec<String> = before
            .iter()
            .filter(|(key, value)| said.get(*key) != Some(*value))
            .map(|(key, value)| format!("{key} was {value} before us: {write}"))
            .collect();
        drop(seen);
        for wrong in wrong {
            self.violated(wrong);
        }
    }

    fn record(&self, write: &Write, objects: Objects<'_>) {
        let Some(after) = write.after() else {
            return self.forgotten(write);
        };
        let owner = after["spec"]["nodeUID"].as_str().unwrap_or_default();
        let held = recorded(Some(after), owner);
        let dropped = recorded(write.before(), owner)
            .into_iter()
            .filter(|key| !held.contains(key));
        let node = objects.get("nodes", "", &write.name).filter(|node| uid(node) == owner);
        let there = node.map(labels).unwrap_or_default();
        let set_by_us = |key: &&str| {
            let seen = self.seen.lock().unwrap();
            let setter = seen.setters.get(owner).and_then(|setters| setters.get(*key));
            setter == Some(&Setter::Us)
        };
        for key in dropped.filter(|key| there.contains_key(*key)).filter(set_by_us) {
            self.violated(format!("the record forgets {key}, which is on the Node: {write}"));
        }
        self.before(write, after, owner);
        if condition(after, "Verified")["status"] == "True" {
            self.seen.lock().unwrap().verified.insert(owner.to_owned());
            self.group(write, after, owner);
        }
    }

    /// The Node `owner` is verified for a group.
    fn group(&self, write: &Write, after: &Value, owner: &str) {
        let group = after["status"]["instanceGroup"].as_str().unwrap_or_default();
        let before = self
            .seen
            .lock()
            .unwrap()
            .groups
            .insert(owner.to_owned(), group.to_owned());
        if before.is_some_and(|before| before != group && !self.follows(&before, group)) {
            self.violated(format!("it becomes one of {group}: {write}"));
        }
    }

    /// Returns true if a Node that is verified for the group `before` follows its instance to the group `after`.
    pub fn follows(&self, before: &str, after: &str) -> bool {
        let is_worker = |group: &str| group == GROUPS[0].0;
        self.policy.on_group_change == OnGroupChange::Follow && (!is_worker(before) || is_worker(after))
    }
}
