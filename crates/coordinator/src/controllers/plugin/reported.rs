//! The status of each plugin as its last pass determined it, so that the write of a status starts no pass.
//!
//! - A pass that fails writes a status, and the API server may say something else each time. If the write started the
//!   next pass, a plugin that fails would not wait for its backoff.
//! - A status that somebody else wrote, or that is not the last one, starts a pass. So does every other change.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::core::ObjectMeta;
use parking_lot::Mutex;
use tidewaiter_api::containership::{Plugin, PluginStatus};
use tidewaiter_kit::{Change, Key, Queue, Trigger};

/// The last status of each plugin. Clones share them.
#[derive(Clone, Default)]
pub(super) struct Reported(Arc<Mutex<BTreeMap<Key, PluginStatus>>>);

impl Reported {
    /// The pass has determined this status. True if the last one was another: the cache may not show that one yet, and
    /// then does not say whether a write is needed.
    pub(super) fn set(&self, plugin: &Key, status: &PluginStatus) -> bool {
        let last = self.0.lock().insert(plugin.clone(), status.clone());
        last.is_some_and(|last| last != *status)
    }

    /// The plugin is gone.
    pub(super) fn forget(&self, plugin: &Key) {
        self.0.lock().remove(plugin);
    }

    /// Reconciles each plugin that changes, unless the change is the write of its last status.
    pub(super) fn unless_reported(&self, queue: &Queue) -> Trigger<Plugin> {
        let (reported, queue) = (self.clone(), queue.clone());
        Trigger::calls(move |change: &Change<'_, Plugin>| {
            let both = change.before.zip(change.after);
            if both.is_none_or(|(before, after)| !reported.is_write(change.key(), before, after)) {
                queue.push(change.key().clone());
            }
        })
    }

    fn is_write(&self, plugin: &Key, before: &Plugin, after: &Plugin) -> bool {
        let is_last = after.status.is_some() && self.0.lock().get(plugin) == after.status.as_ref();
        is_last && before.spec == after.spec && unversioned(before) == unversioned(after)
    }
}

/// The metadata without what each write changes.
fn unversioned(plugin: &Plugin) -> ObjectMeta {
    ObjectMeta {
        resource_version: None,
        managed_fields: None,
        ..plugin.metadata.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tidewaiter_kit::{Feed, Kit, ManualClock};

    use super::*;

    const ID: &str = "cccccccc-0000-4000-8000-000000000001";

    fn plugin(version: &str, metadata: &Value, objects: u32) -> Plugin {
        let mut plugin = json!({"metadata": {"name": ID, "namespace": "containership-core", "uid": "u"},
            "spec": {"id": ID, "version": version, "type": "metrics", "implementation": "app"}});
        plugin["metadata"]
            .as_object_mut()
            .unwrap()
            .extend(metadata.as_object().unwrap().clone());
        let mut plugin: Plugin = serde_json::from_value(plugin).unwrap();
        plugin.status = Some(status(objects));
        plugin
    }

    fn status(objects: u32) -> PluginStatus {
        PluginStatus {
            objects,
            ..PluginStatus::default()
        }
    }

    #[test]
    fn the_write_of_a_status_starts_no_pass_and_every_other_change_does() {
        let kit = Kit::new(ManualClock::default().shared()).unwrap();
        let (mut feed, cache) = Feed::<Plugin>::new(&kit);
        let (reported, queue) = (Reported::default(), Queue::new());
        cache.notify(reported.unless_reported(&queue));
        let version = |version: u32| json!({"resourceVersion": version.to_string()});
        feed.list([plugin("1.0.0", &version(1), 0)]);
        let key = queue.try_next().unwrap();
        assert!(!reported.set(&key, &status(1)), "the first one");
        assert!(!reported.set(&key, &status(1)), "the same");
        for (what, changed, wakes) in [
            ("our status", plugin("1.0.0", &version(2), 1), false),
            ("a status of somebody else", plugin("1.0.0", &version(3), 7), true),
            ("ours again", plugin("1.0.0", &version(4), 1), false),
            ("the spec", plugin("2.0.0", &version(5), 1), true),
            (
                "an annotation",
                plugin("2.0.0", &json!({"annotations": {"a": "b"}}), 1),
                true,
            ),
            (
                "the generation",
                plugin("2.0.0", &json!({"annotations": {"a": "b"}, "generation": 7}), 1),
                true,
            ),
            ("both are gone", plugin("2.0.0", &version(6), 1), true),
        ] {
            feed.put(changed);
            assert_eq!(queue.try_next().is_some(), wakes, "{what}");
        }
        // A pass has determined another one: the cache shows an earlier status, and then its own.
        assert!(reported.set(&key, &status(2)));
        for (what, objects, wakes) in [("an earlier one", 3, true), ("the last one", 2, false)] {
            feed.put(plugin("2.0.0", &version(8 + objects), objects));
            assert_eq!(queue.try_next().is_some(), wakes, "{what}");
        }
        reported.forget(&key);
        feed.put(plugin("2.0.0", &version(20), 2));
        assert!(queue.try_next().is_some(), "nothing is known of it");
    }
}
