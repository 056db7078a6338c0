//! Plugins with many objects.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::AuditMark;

use crate::cluster::{MORE, coordinator};
use crate::shapes;
use crate::world::{World, config, id, in_namespace, plugin_of};

const OBJECTS: usize = 60;

fn name(number: usize) -> String {
    format!("one-of-many-{number}")
}

/// The requests of the coordinator for `ConfigMap`s since `mark`, by verb.
async fn requests(world: &World, mark: AuditMark) -> BTreeMap<String, usize> {
    let audit = world.plane().audit().await.since(mark).by(&coordinator());
    let mut requests = BTreeMap::new();
    for entry in &audit.of("configmaps") {
        *requests.entry(entry.verb.clone()).or_default() += 1;
    }
    requests
}

#[tokio::test]
async fn many_objects_are_looked_for_together_and_those_of_others_are_found() {
    let world = World::start().await;
    let theirs = world.put(&world.configs(), &config(&name(7), "theirs")).await;
    let objects: Vec<Value> = (0..OBJECTS).map(|number| config(&name(number), "1")).collect();
    world.offer(1, "1.0.0", &json!([objects]));
    let mark = world.plane().audit_mark().await;
    let running = world.run(PluginSettings::default()).await;
    let message = world.condition(1, "1.0.0", "Stalled", "True ForeignObject").await;
    assert!(message.contains(&name(7)), "{message}");
    let after = world.configs().get(&name(7)).await.unwrap();
    assert_eq!(after.metadata.resource_version, theirs.metadata.resource_version);

    world.delete(&world.configs(), &name(7)).await;
    world.is_ready(1, "1.0.0").await;
    let of_plugin = |found: &Value| plugin_of(found) == Some(&id(1));
    world.shows(&world.configs(), &name(7), of_plugin).await;
    world.is_quiet().await;
    let made = requests(&world, mark).await;
    let patched = made.get("patch").copied().unwrap_or_default();
    assert!((OBJECTS..=OBJECTS + MORE).contains(&patched), "{made:?}");
    assert!(made.get("get").copied().unwrap_or_default() < OBJECTS / 2, "{made:?}");

    // A pass in which nothing is to be done.
    let mark = world.plane().audit_mark().await;
    let noted = json!({"apiVersion": "containership.io/v3", "kind": "Plugin", "metadata": {"name": id(1), "annotations": {"a": "b"}}});
    let plugins = world.objects("containership.io/v3", "plugins", "Plugin", Some("containership-core"));
    world.put(&plugins, &noted).await;
    world.is_quiet().await;
    let made = requests(&world, mark).await;
    assert!(!made.contains_key("get") && !made.contains_key("patch"), "{made:?}");
    assert!(world.written_since(mark).await.is_empty());

    // The inventory is written before the first object, and at the end, not with each group.
    let mark = world.plane().audit_mark().await;
    let groups: Vec<Value> = (0..5)
        .map(|number| json!([config(&format!("group-{number}"), "1")]))
        .collect();
    world.offer(2, "1.0.0", &json!(groups));
    world.is_ready(2, "1.0.0").await;
    world.is_quiet().await;
    let audit = world.plane().audit().await.since(mark).by(&coordinator());
    let written = audit.of("plugininventories").writes().count();
    assert!((2..=4).contains(&written), "{written} writes");
    running.stop().await;
}

/// The reads of `ConfigMap`s in the namespace since `mark`, before the first one was written there.
async fn reads_in(world: &World, mark: AuditMark, namespace: &str) -> Vec<String> {
    let audit = world
        .plane()
        .audit()
        .await
        .since(mark)
        .by(&coordinator())
        .of("configmaps");
    let place = format!("/namespaces/{namespace}/");
    let there = audit.iter().filter(|entry| entry.uri.contains(&place));
    let before = there.take_while(|entry| matches!(entry.verb.as_str(), "get" | "list"));
    before.map(|entry| entry.uri.clone()).collect()
}

#[tokio::test]
async fn nothing_is_looked_for_in_a_namespace_that_does_not_exist() {
    let world = World::start().await;
    let (new, old) = ("new-place", "old-place");
    let in_it = |namespace: &str, number: usize| in_namespace(config(&name(number), "1"), namespace);
    let namespaces = world.objects("v1", "namespaces", "Namespace", None);
    world.put(&namespaces, &shapes::namespace(old)).await;
    let theirs = world.objects("v1", "configmaps", "ConfigMap", Some(old));
    world.put(&theirs, &in_it(old, 1)).await;

    let mark = world.plane().audit_mark().await;
    for (number, namespace) in [(1, new), (2, old)] {
        let objects: Vec<Value> = (0..3).map(|number| in_it(namespace, number)).collect();
        world.offer(number, "1.0.0", &json!([[shapes::namespace(namespace)], objects]));
    }
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let message = world.condition(2, "1.0.0", "Stalled", "True ForeignObject").await;
    assert!(message.contains(&name(1)), "{message}");
    assert_eq!(reads_in(&world, mark, new).await, [""; 0]);
    assert!(!reads_in(&world, mark, old).await.is_empty());
    running.stop().await;
}
