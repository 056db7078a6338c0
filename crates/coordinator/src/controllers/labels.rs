//! The rule that the cluster label controller and the node pool label controller share: which of their custom resources
//! count.
//!
//! A resource counts if it takes effect ([`Listed`]), its key has the prefix of its kind, and no other resource for the
//! same nodes with the same key was created later. One that does not count is reported on itself, and hides no other.
//! Labels are written on Nodes by [`node_labels`](super::node_labels), in one patch for both kinds.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::object::HasSpec;
use kube::{Client, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidewaiter_api::{LabelKey, LabelValue};
use tidewaiter_kit::{
    Cache, Cacheable, Category, Controller, ControllerContext, Index, Key, Kit, Next, Notice, Pass, Queue,
    ReconcileError, Reconciler, Retry, Tasks, UndecodableObjects,
};

use super::listed::Listed;
use crate::mirror::Mirrored;

/// A custom resource that is a label of nodes, in the namespace `containership-core`.
pub(super) trait LabelResource:
    Cacheable
    + DeserializeOwned
    + Resource<Scope = k8s_openapi::NamespaceResourceScope>
    + HasSpec<Spec: Clone + PartialEq + Serialize>
{
    /// The name of its controller.
    const CONTROLLER: &'static str;
    /// The prefix of its keys. Within it the labels of a Node are exactly those of the resources.
    const PREFIX: &'static str;

    fn label(&self) -> (&LabelKey, &LabelValue);

    /// The node pool that it is for; None if it is for every node.
    fn pool(&self) -> Option<&LabelValue>;

    /// The time when it was created, in milliseconds since 1970, as the cloud writes it.
    fn created_at(&self) -> &str;
}

/// The labels of one kind that a Node should have, and no others under the prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Desired {
    /// The prefix of the kind.
    pub(super) prefix: &'static str,
    pub(super) labels: BTreeMap<LabelKey, LabelValue>,
    /// True if every resource of the kind can be read. If not, a label that no resource names may be that of one that
    /// cannot be read.
    pub(super) complete: bool,
}

/// The pair that two resources may not both have: the same nodes, and the same key.
type Slot = (Option<LabelValue>, LabelKey);

/// The resources of one kind.
pub(super) struct Labels<K> {
    resources: Listed<K>,
    by_pool: Index<Option<LabelValue>>,
    by_key: Index<LabelKey>,
    by_slot: Index<Slot>,
    undecodable: UndecodableObjects,
}

impl<K: LabelResource> Labels<K> {
    /// Of the mirror, or, without it, what the cluster has.
    pub(super) fn start(mirrored: Option<Mirrored<K>>, reader: &Client, kit: &Kit, tasks: &mut Tasks) -> Self {
        Self::of(Listed::start(mirrored, reader, kit, tasks), kit)
    }

    fn of(resources: Listed<K>, kit: &Kit) -> Self {
        let cache = resources.cache();
        Self {
            by_pool: cache.index(|label: &K| has_prefix(label).then(|| label.pool().cloned())),
            by_key: cache.index(|label: &K| has_prefix(label).then(|| label.label().0.clone())),
            by_slot: cache.index(slot::<K>),
            undecodable: kit.undecodable.clone(),
            resources,
        }
    }

    pub(super) fn cache(&self) -> &Cache<K> {
        self.resources.cache()
    }

    /// The number of times that the cloud has changed the labels.
    pub(super) fn revision(&self) -> u64 {
        self.resources.revision()
    }

    /// Calls `wake` when the cloud lists others.
    pub(super) fn notify_list(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.resources.notify_list(move |_| wake());
    }

    /// The labels for these nodes: those of a node pool, or all.
    pub(super) fn desired(&self, pool: Option<&LabelValue>) -> Desired {
        let labels = winners(self.of_pool(pool)).into_values().map(|label| {
            let (key, value) = label.label();
            (key.clone(), value.clone())
        });
        Desired {
            labels: labels.collect(),
            ..self.nothing()
        }
    }

    /// A state without labels.
    pub(super) fn nothing(&self) -> Desired {
        Desired {
            prefix: K::PREFIX,
            labels: BTreeMap::new(),
            complete: !self.undecodable.any::<K>() && self.resources.has_all(),
        }
    }

    /// Returns true if any resource names the key, for whichever nodes.
    pub(super) fn name(&self, key: &str) -> bool {
        let Ok(key) = key.parse::<LabelKey>() else {
            return false;
        };
        self.counted(self.by_key.keys(&key)).next().is_some()
    }

    fn counted(&self, keys: Vec<Key>) -> impl Iterator<Item = Arc<K>> {
        keys.into_iter().filter_map(|key| self.resources.get(key.name()))
    }

    fn of_pool(&self, pool: Option<&LabelValue>) -> impl Iterator<Item = Arc<K>> {
        self.counted(self.by_pool.keys(&pool.cloned()))
    }
}

fn has_prefix<K: LabelResource>(label: &K) -> bool {
    label.label().0.as_str().starts_with(K::PREFIX)
}

fn slot<K: LabelResource>(label: &K) -> Option<Slot> {
    has_prefix(label).then(|| (label.pool().cloned(), label.label().0.clone()))
}

/// Of the resources for the same nodes, the one that counts for each key: the one that was created last in the cloud;
/// of several, the one whose name comes first.
fn winners<K: LabelResource>(labels: impl IntoIterator<Item = Arc<K>>) -> BTreeMap<LabelKey, Arc<K>> {
    let mut winners = BTreeMap::<LabelKey, Arc<K>>::new();
    for label in labels {
        let key = label.label().0.clone();
        if winners.get(&key).is_none_or(|winner| rank(&*label) > rank(&**winner)) {
            winners.insert(key, label);
        }
    }
    winners
}

fn rank(label: &impl LabelResource) -> (u64, Reverse<&str>) {
    let name = label.meta().name.as_deref().unwrap_or_default();
    (label.created_at().parse().unwrap_or_default(), Reverse(name))
}

/// The reason why a resource does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum LabelError {
    #[error("spec.key is {key}, must begin with {prefix}")]
    Prefix { key: LabelKey, prefix: &'static str },
    #[error("spec.key is {key}, which {winner} has for the same nodes, and was created later")]
    Overruled { key: LabelKey, winner: String },
}

impl ReconcileError for LabelError {
    fn category(&self) -> Category {
        let (class, reason) = match self {
            Self::Prefix { .. } => ("prefix", "InvalidKey"),
            Self::Overruled { .. } => ("overruled", "Overruled"),
        };
        let note = format!(
            "{self}. No node gets this label. Correct it in the cloud, or delete this object if a person created it."
        );
        Category::refusal(class, Retry::Slow).notify(Notice::warning(reason, "Read", note))
    }
}

/// Reports the resources of one kind that do not count.
struct LabelController<K>(Arc<Labels<K>>);

/// Starts the controller of a kind.
pub(super) fn start<K: LabelResource>(labels: &Arc<Labels<K>>, context: &ControllerContext, tasks: &mut Tasks) {
    let queue = Queue::new();
    labels.cache().notify(queue.same_name());
    labels
        .cache()
        .notify(queue.sharing(&labels.by_slot, slot::<K>).changes_only());
    Controller::new(LabelController(Arc::clone(labels)), queue).start(context.clone(), tasks);
}

impl<K: LabelResource> Reconciler for LabelController<K> {
    const NAME: &'static str = K::CONTROLLER;
    type Error = LabelError;

    async fn reconcile(&self, pass: &mut Pass) -> Result<Next, LabelError> {
        let Some(label) = self.0.resources.get(pass.key().name()) else {
            return Ok(Next::UntilChanged);
        };
        pass.about(label.object_ref(&()));
        judge(&*label, self.0.of_pool(label.pool())).map(|()| Next::UntilChanged)
    }
}

/// Checks that the resource counts among those for the same nodes.
fn judge<K: LabelResource>(label: &K, rivals: impl IntoIterator<Item = Arc<K>>) -> Result<(), LabelError> {
    let key = label.label().0.clone();
    if !has_prefix(label) {
        let prefix = K::PREFIX;
        return Err(LabelError::Prefix { key, prefix });
    }
    let winner = winners(rivals).remove(&key).map(|winner| Key::of(&*winner));
    match winner {
        Some(winner) if winner != Key::of(label) => Err(LabelError::Overruled {
            key,
            winner: winner.name().to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tidewaiter_api::containership::{ClusterLabel, NodePoolLabel};
    use tidewaiter_api::names::CONTAINERSHIP_NAMESPACE;
    use tidewaiter_kit::{Feed, ManualClock};

    use super::*;
    use crate::mirror::CloudList;

    fn label(name: &str, created_at: &str, key: &str, value: &str) -> Arc<ClusterLabel> {
        let label = json!({"metadata": {"name": name, "namespace": CONTAINERSHIP_NAMESPACE, "uid": name},
            "spec": {"id": name, "created_at": created_at, "key": key, "value": value}});
        Arc::new(serde_json::from_value(label).unwrap())
    }

    fn pool_label(name: &str, pool: &str, key: &str, value: &str) -> NodePoolLabel {
        let label = json!({"metadata": {"name": name, "namespace": CONTAINERSHIP_NAMESPACE, "uid": name},
            "spec": {"id": name, "key": key, "value": value, "node_pool_id": pool}});
        serde_json::from_value(label).unwrap()
    }

    const ENV: &str = "cluster.containership.io/env";

    #[test]
    fn of_two_resources_with_one_key_the_newer_one_counts() {
        for (labels, winner) in [
            (&[("a", "1"), ("b", "2")][..], "b"),
            (&[("b", "2"), ("a", "1")], "b"),
            (&[("a", "1"), ("b", "1")], "a"),
            (&[("b", "1"), ("a", "1")], "a"),
            // A number, not a text; what is no number is older than any.
            (&[("a", "999"), ("b", "1000")], "b"),
            (&[("a", ""), ("b", "1")], "b"),
            (&[("a", "today"), ("b", "1")], "b"),
        ] {
            let all: Vec<_> = labels.iter().map(|(name, at)| label(name, at, ENV, name)).collect();
            let winners = winners(all.clone());
            assert_eq!(winners[ENV].spec.value.as_str(), winner, "{labels:?}");
            for one in &all {
                let name = one.metadata.name.as_deref().unwrap();
                assert_eq!(judge(&**one, all.clone()).is_ok(), name == winner, "{labels:?}: {name}");
            }
        }
    }

    #[test]
    fn a_key_outside_the_prefix_is_refused_and_hides_no_other() {
        let (kit, _) = kit();
        let (mut feed, cache) = Feed::<ClusterLabel>::new(&kit);
        let labels = Labels::of(Listed::new(cache, None), &kit);
        let bad = label("bad", "9", "kubernetes.io/os", "plan9");
        feed.list([(*bad).clone(), (*label("good", "1", ENV, "x")).clone()]);
        let desired = labels.desired(None);
        assert_eq!(desired.labels.len(), 1, "{desired:?}");
        assert_eq!(desired.labels[ENV].as_str(), "x");
        assert!(!labels.name("kubernetes.io/os") && labels.name(ENV));
        let error = judge(&*bad, labels.of_pool(None)).unwrap_err();
        assert_eq!(
            error.notice().unwrap().note,
            "spec.key is kubernetes.io/os, must begin with cluster.containership.io/. No node gets this label. Correct it in the cloud, \
             or delete this object if a person created it."
        );
    }

    #[test]
    fn the_labels_of_a_pool_are_those_of_no_other() {
        let (kit, _) = kit();
        let (mut feed, cache) = Feed::<NodePoolLabel>::new(&kit);
        let labels = Labels::of(Listed::new(cache, None), &kit);
        feed.list([
            pool_label("a", "gpu", "nodepool.containership.io/disk", "ssd"),
            pool_label("b", "web", "nodepool.containership.io/disk", "hdd"),
            pool_label("c", "web", "nodepool.containership.io/zone", ""),
        ]);
        let of = |pool: &str| {
            let desired = labels.desired(Some(&pool.parse().unwrap())).labels.into_iter();
            desired.map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
        };
        assert_eq!(of("gpu"), ["nodepool.containership.io/disk=ssd"]);
        assert_eq!(
            of("web"),
            ["nodepool.containership.io/disk=hdd", "nodepool.containership.io/zone="]
        );
        assert!(of("none").is_empty() && labels.nothing().labels.is_empty());
        feed.delete(pool_label("c", "web", "nodepool.containership.io/zone", ""));
        assert_eq!(of("web"), ["nodepool.containership.io/disk=hdd"]);
        assert!(!labels.name("nodepool.containership.io/zone"));
    }

    const ONE: &str = "cccccccc-0000-4000-8000-000000000001";
    const TWO: &str = "cccccccc-0000-4000-8000-000000000002";

    #[test]
    fn what_the_cloud_lists_counts_and_what_somebody_edits_or_keeps_by_a_finalizer_does_not() {
        let (kit, _) = kit();
        let (mut feed, cache) = Feed::<ClusterLabel>::new(&kit);
        let list = CloudList::new("sync-cluster-labels");
        let labels = Labels::of(Listed::new(cache, Some(list.clone())), &kit);
        let lists = |listed: &[Arc<ClusterLabel>]| {
            let named = |label: &Arc<ClusterLabel>| (label.spec.id.clone(), Some(Arc::clone(label)));
            list.set(listed.iter().map(named).collect(), [].into(), true);
        };
        let deleted = |name: &str, at: &str, value: &str| {
            let mut label = (*label(name, at, ENV, value)).clone();
            label.metadata.deletion_timestamp = Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap());
            label
        };
        let value = || {
            let desired = labels.desired(None);
            let value = desired.labels.get(ENV).map(|value| value.as_str().to_owned());
            (value, desired.complete, labels.name(ENV))
        };
        let of = |text: &str| Some(text.to_owned());
        feed.list([
            deleted("forged", "9", "hacked"),
            (*label(ONE, "1", ENV, "prod")).clone(),
        ]);
        assert_eq!(
            value(),
            (None, false, false),
            "the cloud was not asked yet: nothing is written, and nothing goes"
        );
        lists(&[label(ONE, "1", ENV, "prod")]);
        assert_eq!(value(), (of("prod"), true, true));
        // A person edits the label, its key, and which of two counts.
        feed.put((*label(ONE, "1", ENV, "hacked")).clone());
        assert_eq!(value(), (of("prod"), true, true));
        feed.put((*label(ONE, "1", "cluster.containership.io/other", "prod")).clone());
        assert_eq!(value(), (of("prod"), true, true));
        assert!(!labels.name("cluster.containership.io/other"));
        feed.put((*label("forged", "9", ENV, "hacked")).clone());
        assert_eq!(value(), (of("prod"), true, true));
        // The cloud changes it, and somebody else keeps the copy from following.
        lists(&[label(ONE, "1", ENV, "test")]);
        assert_eq!(value(), (of("test"), true, true));
        lists(&[label(ONE, "1", ENV, "prod")]);
        // A person deletes the label, with a finalizer, and at last without: it stays on the Nodes.
        feed.put(deleted(ONE, "1", "prod"));
        assert_eq!(value(), (of("prod"), true, true));
        feed.delete(deleted(ONE, "1", "prod"));
        assert_eq!(value(), (None, false, false));
        // The cloud has another one instead.
        lists(&[label(TWO, "2", ENV, "dev")]);
        assert_eq!(value(), (None, false, false));
        feed.put((*label(TWO, "2", ENV, "dev")).clone());
        assert_eq!(value(), (of("dev"), true, true));
        lists(&[]);
        assert_eq!(value(), (None, true, false));
    }

    /// Otherwise anyone who deletes copies could cause any number of writes to Nodes.
    #[test]
    fn only_the_cloud_changes_the_revision() {
        let (kit, _) = kit();
        let (mut feed, cache) = Feed::<ClusterLabel>::new(&kit);
        let list = CloudList::new("sync-cluster-labels");
        let labels = Labels::of(Listed::new(cache, Some(list.clone())), &kit);
        let lists = |value: &str| {
            list.set(
                [(ONE.to_owned(), Some(label(ONE, "1", ENV, value)))].into(),
                [].into(),
                true,
            );
        };
        lists("prod");
        let first = labels.revision();
        for _ in 0..3 {
            feed.put((*label(ONE, "1", ENV, "prod")).clone());
            feed.put((*label(ONE, "1", ENV, "hacked")).clone());
            feed.delete((*label(ONE, "1", ENV, "hacked")).clone());
            lists("prod");
        }
        assert_eq!(labels.revision(), first);
        lists("test");
        assert_eq!(labels.revision(), first + 1);

        let (mut feed, cache) = Feed::<ClusterLabel>::new(&kit);
        let labels = Labels::of(Listed::new(cache, None), &kit);
        feed.list([(*label(ONE, "1", ENV, "prod")).clone()]);
        let first = labels.revision();
        feed.put((*label(ONE, "1", ENV, "prod")).clone());
        assert_eq!(labels.revision(), first);
        feed.put((*label(ONE, "1", ENV, "test")).clone());
        assert_eq!(labels.revision(), first + 1, "without a mirror, people decide");
    }

    #[test]
    fn without_a_mirror_a_resource_that_is_being_deleted_does_not_count() {
        let (kit, _) = kit();
        let (mut feed, cache) = Feed::<ClusterLabel>::new(&kit);
        let labels = Labels::of(Listed::new(cache, None), &kit);
        let mut forged = (*label("forged", "9", ENV, "hacked")).clone();
        forged.metadata.deletion_timestamp = Some(serde_json::from_str("\"2026-01-01T00:00:00Z\"").unwrap());
        feed.list([forged]);
        let desired = labels.desired(None);
        assert!(desired.labels.is_empty() && desired.complete && !labels.name(ENV));
    }

    fn kit() -> (Kit, ManualClock) {
        let clock = ManualClock::default();
        (Kit::new(clock.shared()).unwrap(), clock)
    }
}
