//! Triggers: the reconciles that a change of a cached object starts.
//!
//! A trigger is made from the queue of the controller that it wakes, and named after how it finds the keys. It runs
//! after all indexes of its cache are updated. The controller waits for the first list of the cache, unless the trigger
//! is [`unawaited`](Trigger::unawaited), and begins with all objects, unless it is
//! [`changes_only`](Trigger::changes_only).

use kube::Resource;

use crate::cache::{Cache, Cacheable, Change, Trigger};
use crate::index::Index;
use crate::key::Key;
use crate::queue::Queue;

impl Queue {
    /// Calls `call`, which pushes keys, for each change while this replica leads, and for each object when it begins to
    /// lead.
    #[must_use]
    pub fn trigger<K>(&self, call: impl Fn(&Self, &Change<'_, K>) + Send + Sync + 'static) -> Trigger<K> {
        Trigger::pushes(self, call)
    }

    /// Reconciles the object itself, or the object of another kind that has its name and namespace.
    #[must_use]
    pub fn same_name<K: Resource>(&self) -> Trigger<K> {
        self.trigger(|queue, change: &Change<'_, K>| queue.push(change.key().clone()))
    }

    /// Reconciles `key`, whatever changed: for a controller that has one thing to do.
    #[must_use]
    pub fn always<K>(&self, key: Key) -> Trigger<K> {
        self.trigger(move |queue, _: &Change<'_, K>| queue.push(key.clone()))
    }

    /// Reconciles the cluster-scoped object that the label `label` names, before and after.
    #[must_use]
    pub fn label_value<K: Resource>(&self, label: &'static str) -> Trigger<K> {
        self.trigger(move |queue, change: &Change<'_, K>| {
            for version in change.versions() {
                if let Some(name) = version.meta().labels.as_ref().and_then(|labels| labels.get(label)) {
                    queue.push(Key::new(name));
                }
            }
        })
    }

    /// Reconciles every object of `cache`.
    #[must_use]
    pub fn all_keys<K, T: Cacheable>(&self, cache: &Cache<T>) -> Trigger<K> {
        let cache = cache.clone();
        self.trigger(move |queue, _: &Change<'_, K>| {
            for key in cache.keys() {
                queue.push(key);
            }
        })
    }

    /// Reconciles every object that shares a value of `index` with the object, before or after.
    #[must_use]
    pub fn sharing<K: 'static, V>(&self, index: &Index<V>, value: fn(&K) -> Option<V>) -> Trigger<K>
    where
        V: Ord + Clone + Send + Sync + 'static,
    {
        let index = index.clone();
        self.trigger(move |queue, change: &Change<'_, K>| {
            let (before, after) = (change.before.and_then(value), change.after.and_then(value));
            if before == after {
                return;
            }
            for value in before.iter().chain(&after) {
                for key in index.keys(value) {
                    queue.push(key);
                }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures::FutureExt as _;
    use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
    use serde_json::{Value, json};

    use super::*;
    use crate::cache::Feed;
    use crate::testing::kit;

    fn object<K: serde::de::DeserializeOwned>(metadata: &Value) -> K {
        serde_json::from_value(json!({ "metadata": metadata })).unwrap()
    }

    fn waiting(queue: &Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.try_next())
            .map(|key| key.to_string())
            .collect()
    }

    #[test]
    fn an_object_wakes_what_has_its_name_and_what_its_label_names() {
        let (queue, (kit, _)) = (Queue::new(), kit());
        let (mut pods, cache) = Feed::<Pod>::new(&kit);
        cache.notify(queue.label_value("pool"));
        cache.notify(queue.same_name());
        cache.notify(queue.always(Key::new("all")));
        let pod =
            |pool: &str| object::<Pod>(&json!({"name": "p", "namespace": "n", "uid": "1", "labels": {"pool": pool}}));
        pods.list([pod("a")]);
        assert_eq!(waiting(&queue), ["a", "n/p", "all"]);
        pods.put(pod("b"));
        let woken = waiting(&queue);
        assert!(
            ["a", "b"].iter().all(|pool| woken.iter().any(|key| key == pool)),
            "{woken:?}"
        );
        pods.delete(pod("b"));
        assert_eq!(waiting(&queue), ["b", "n/p", "all"]);
    }

    #[test]
    fn the_first_list_of_a_cache_is_awaited_unless_its_trigger_says_otherwise() {
        let (queue, (kit, _)) = (Queue::new(), kit());
        let (_feed, cache) = Feed::<Node>::new(&kit);
        cache.notify(queue.same_name().unawaited());
        assert!(queue.first_lists().is_empty());
        cache.notify(queue.same_name());
        assert_eq!(queue.first_lists().len(), 1);
    }

    #[tokio::test]
    async fn a_new_leader_queues_the_objects_that_exist_in_steps() {
        let (queue, (kit, _)) = (Queue::new(), kit());
        let (mut nodes, cache) = Feed::<Node>::new(&kit);
        cache.notify(queue.same_name());
        queue.stand_by();
        nodes.list((0..250).map(|number| object(&json!({"name": format!("n{number}"), "uid": "1"}))));
        let mut seed = pin!(queue.seed());
        assert!(seed.as_mut().now_or_never().is_none());
        assert_eq!(queue.len(), 100, "other tasks have their turn");
        seed.await;
        assert_eq!(queue.len(), 250);
    }

    #[tokio::test]
    async fn a_trigger_for_changes_alone_is_not_called_for_the_objects_that_exist() {
        let (queue, (kit, _)) = (Queue::new(), kit());
        let (mut nodes, cache) = Feed::<Node>::new(&kit);
        let node = |version: &str| object::<Node>(&json!({"name": "a", "uid": "1", "resourceVersion": version}));
        cache.notify(queue.same_name().changes_only());
        assert_eq!(queue.first_lists().len(), 1, "it is awaited");
        queue.stand_by();
        nodes.list([node("1")]);
        queue.seed().await;
        cache.notify(queue.same_name().changes_only());
        assert!(queue.is_empty());
        nodes.put(node("2"));
        assert_eq!(waiting(&queue), ["a"]);
    }

    #[test]
    fn every_object_of_another_cache_is_woken() {
        let (queue, (kit, _)) = (Queue::new(), kit());
        let (mut namespaces, cache) = Feed::<Namespace>::new(&kit);
        let (mut pods, changing) = Feed::<Pod>::new(&kit);
        changing.notify(queue.all_keys(&cache));
        namespaces.list(["a", "b"].map(|name| object(&json!({"name": name, "uid": name}))));
        pods.list([object(&json!({"name": "p", "namespace": "a", "uid": "1"}))]);
        assert_eq!(waiting(&queue), ["a", "b"]);
    }

    #[test]
    fn objects_that_share_a_value_wake_each_other_when_it_changes() {
        fn claim(node: &Node) -> Option<String> {
            node.metadata.labels.as_ref()?.get("claim").cloned()
        }
        let (queue, (kit, _)) = (Queue::new(), kit());
        let (mut nodes, cache) = Feed::<Node>::new(&kit);
        let shared = cache.index(claim);
        cache.notify(queue.sharing(&shared, claim).unless(|before, after| before == after));
        let node =
            |name: &str, claim: &str| object::<Node>(&json!({"name": name, "uid": name, "labels": {"claim": claim}}));
        nodes.list([node("a", "x"), node("b", "y")]);
        waiting(&queue);
        nodes.put(node("c", "x"));
        assert_eq!(waiting(&queue), ["a", "c"]);
        nodes.put(node("c", "y"));
        assert_eq!(waiting(&queue), ["a", "b", "c"]);
        nodes.put(node("c", "y"));
        assert!(waiting(&queue).is_empty());
    }
}
