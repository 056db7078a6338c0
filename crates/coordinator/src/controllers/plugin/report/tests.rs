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
