use std::sync::Arc;

use kube::core::ObjectMeta;
use tidewaiter_api::{AppliedKind, AppliedObject, PluginInventorySpec};
use tidewaiter_kit::ManualClock;

use super::*;

fn id(namespace: &str, name: &str) -> ObjectId {
    ObjectId {
        name: name.to_owned(),
        kind: "ConfigMap".to_owned(),
        namespace: namespace.to_owned(),
        group: String::new(),
    }
}

struct World {
    clock: ManualClock,
    queue: Queue,
    wakes: Wakes,
}

impl World {
    /// Two plugins, each with `one` in the namespace of its name.
    fn new() -> Self {
        let (clock, queue) = (ManualClock::default(), Queue::new());
        let wakes = Wakes(Arc::new(Shared {
            queue: queue.clone(),
            clock: clock.shared(),
            plugins: Mutex::default(),
            postponed: Notify::new(),
        }));
        for plugin in ["a", "b"] {
            let spec = PluginInventorySpec {
                kinds: vec![AppliedKind {
                    version: "v1".to_owned(),
                    kind: "ConfigMap".to_owned(),
                    namespace: plugin.to_owned(),
                    objects: vec![AppliedObject {
                        name: "one".to_owned(),
                        ..AppliedObject::default()
                    }],
                    ..AppliedKind::default()
                }],
                ..PluginInventorySpec::default()
            };
            let inventory = PluginInventory {
                metadata: ObjectMeta::default(),
                spec,
            };
            wakes.remember(&Change::applied(&Key::new(plugin), None, &inventory));
        }
        Self { clock, queue, wakes }
    }

    /// The queued plugins. Their passes begin.
    fn woken(&self) -> Vec<String> {
        let queued = std::iter::from_fn(|| self.queue.try_next());
        queued
            .map(|key| {
                self.wakes.begins(&key);
                key.to_string()
            })
            .collect()
    }
}

#[test]
fn only_named_objects_wake_their_plugins() {
    let world = World::new();
    for (what, id, woken) in [
        ("an object of a", id("a", "one"), &["a"][..]),
        ("one of b", id("b", "one"), &["b"]),
        ("another name", id("a", "two"), &[]),
        ("another namespace", id("c", "one"), &[]),
    ] {
        world.wakes.changed(&id);
        assert_eq!(world.woken(), woken, "{what}");
    }
    world.wakes.any_changed("", "ConfigMap");
    assert_eq!(world.woken(), ["a", "b"]);
    world.wakes.any_changed("apps", "ConfigMap");
    assert_eq!(world.woken(), [""; 0]);
}

#[test]
fn changes_before_a_pass_begins_cost_one_pass() {
    let world = World::new();
    for _ in 0..10 * PASSES.burst {
        world.wakes.changed(&id("a", "one"));
    }
    assert_eq!(world.woken(), ["a"]);
    world.wakes.changed(&id("a", "one"));
    assert_eq!(world.woken(), ["a"]);
}

#[test]
fn an_object_that_changes_all_the_time_starts_few_passes_and_the_last_change_is_seen() {
    let world = World::new();
    let (tenth, mut passes) = (Duration::from_millis(100), 0);
    for _ in 0..600 {
        world.wakes.changed(&id("a", "one"));
        world.wakes.queue_due();
        passes += world.woken().len();
        world.clock.advance(tenth);
    }
    // A minute.
    assert_eq!(passes, PASSES.burst as usize + 29);
    // Another plugin has an allowance of its own.
    world.wakes.changed(&id("b", "one"));
    assert_eq!(world.woken(), ["b"]);
    // The last change is postponed.
    world.wakes.queue_due();
    world.woken();
    world.wakes.changed(&id("a", "one"));
    assert_eq!(world.woken(), [""; 0]);
    let wait = world.wakes.queue_due().unwrap();
    world.clock.advance(wait);
    assert_eq!(world.wakes.queue_due(), None);
    assert_eq!(world.woken(), ["a"]);
    // A pass that begins meanwhile sees it.
    world.wakes.changed(&id("a", "one"));
    world.wakes.begins(&Key::new("a"));
    world.clock.advance(PASSES.refill);
    assert_eq!(world.wakes.queue_due(), None);
    assert_eq!(world.woken(), [""; 0]);
}

#[test]
fn an_object_in_the_way_wakes_its_plugin_until_a_pass_does_not_see_it_any_more() {
    let world = World::new();
    let (key, theirs, other) = (Key::new("c"), id("c", "theirs"), id("c", "other"));
    world.wakes.changed(&theirs);
    assert_eq!(world.woken(), [""; 0]);
    world.wakes.obstructed(&key, [theirs.clone()].into_iter());
    // Passes that observe nothing forget nothing.
    for _ in 0..3 {
        world.wakes.changed(&theirs);
        assert_eq!(world.woken(), ["c"]);
    }
    // A watch of the kind that begins has missed changes.
    world.wakes.any_changed("", "ConfigMap");
    assert_eq!(world.woken(), ["a", "b", "c"]);
    // A pass that observes two versions.
    world.wakes.obstructed(&key, [theirs.clone()].into_iter());
    world.wakes.obstructed(&key, [other.clone()].into_iter());
    for id in [&theirs, &other] {
        world.wakes.changed(id);
        assert_eq!(world.woken(), ["c"]);
    }
    world.wakes.obstructed(&key, [other.clone()].into_iter());
    world.wakes.changed(&theirs);
    assert_eq!(world.woken(), [""; 0]);
    world.wakes.changed(&other);
    assert_eq!(world.woken(), ["c"]);
    world.wakes.forget(&key);
    world.wakes.changed(&other);
    assert_eq!(world.woken(), [""; 0]);
}

#[test]
fn an_object_that_changes_while_it_is_observed_wakes_its_plugin() {
    let world = World::new();
    let (key, theirs, gone) = (Key::new("a"), id("a", "theirs"), id("a", "gone"));
    world.wakes.begins(&key);
    world.wakes.observes(&key, [theirs.clone(), gone.clone()].into_iter());
    // It was read, and is handed over before it counts as in the way.
    world.wakes.changed(&theirs);
    world.wakes.obstructed(&key, [theirs.clone()].into_iter());
    assert_eq!(world.woken(), ["a"]);
    world.wakes.changed(&gone);
    assert_eq!(world.woken(), [""; 0]);
    // An observation that fails ends with its pass.
    world.wakes.observes(&key, [gone.clone()].into_iter());
    world.wakes.begins(&key);
    world.wakes.changed(&gone);
    assert_eq!(world.woken(), [""; 0]);
}

#[test]
fn a_plugin_without_inventory_is_not_woken() {
    let world = World::new();
    let inventory = PluginInventory {
        metadata: ObjectMeta::default(),
        spec: PluginInventorySpec::default(),
    };
    let theirs = id("b", "theirs");
    world.wakes.obstructed(&Key::new("b"), [theirs.clone()].into_iter());
    for plugin in ["a", "b"] {
        world.wakes.remember(&Change::deleted(&Key::new(plugin), &inventory));
        world.wakes.changed(&id(plugin, "one"));
        assert_eq!(world.woken(), [""; 0]);
    }
    let left: Vec<Key> = world.wakes.0.plugins.lock().keys().cloned().collect();
    assert_eq!(left, [Key::new("b")], "an object is in its way");
    world.wakes.changed(&theirs);
    assert_eq!(world.woken(), ["b"]);
}
