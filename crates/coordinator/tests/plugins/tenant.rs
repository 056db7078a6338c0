//! A tenant who may change objects in a namespace neither drives nor fills the coordinator.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_api::names::{PLUGIN_LABEL, PLUGIN_STORE_LABEL};
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::usage::Memory;
use tidewaiter_testkit::{ApiProxy, AuditMark, eventually, settled};

use crate::cluster::{SOON, coordinator};
use crate::shapes;
use crate::world::{World, config, definition, id, in_namespace};

/// The objects of the tenant that have the label of a plugin.
const STRANGERS: usize = 3_000;
/// More than a page of a list has.
const IN_THE_SAME_NAMESPACE: usize = 600;
/// The objects of the plugin: they are read with a list.
const OBJECTS: usize = 12;

#[expect(clippy::disallowed_methods, reason = "the rate of passes is measured in real time")]
fn now() -> Instant {
    Instant::now()
}

/// `ConfigMap`s with the label of the plugin, which it does not name. They are listed before its own.
async fn flood(world: &World, namespace: &str, count: usize) {
    let name = |number: usize| format!("a-stranger-{number:05}");
    let mut first = in_namespace(config(&name(0), "theirs"), namespace);
    first["metadata"]["labels"] = json!({PLUGIN_LABEL: id(1)});
    let configs = world.objects("v1", "configmaps", "ConfigMap", Some(namespace));
    let uid = world.put(&configs, &first).await.metadata.uid.unwrap();
    let copy = |number: usize| [name(number), format!("{}{number:05}", &uid[..uid.len() - 5])];
    let key = format!("configmaps/{namespace}/{}", name(0));
    // What the copies take is not to be measured.
    for first in (1..count).step_by(2_000) {
        let copies = (first..count.min(first + 2_000)).map(copy);
        world.plane().copy(&key, [&name(0), &uid], copies).await;
    }
    eventually("the API server to know them", SOON, async || {
        configs
            .get_metadata(&name(count - 1))
            .await
            .map(drop)
            .map_err(|error| error.to_string())
    })
    .await;
}

/// The reads of the coordinator of this resource since `mark`.
async fn reads(world: &World, mark: AuditMark, resource: &str) -> Vec<String> {
    let audit = world.plane().audit().await.since(mark).by(&coordinator()).of(resource);
    let reads = audit
        .iter()
        .filter(|entry| matches!(entry.verb.as_str(), "get" | "list"));
    reads.map(|entry| entry.uri.clone()).collect()
}

/// The reads of `ConfigMap`s by a pass in which nothing is to be done.
async fn reads_of_a_pass(world: &World, note: &str) -> Vec<String> {
    reads_until_quiet(world, world.plane().audit_mark().await).await;
    let mark = world.plane().audit_mark().await;
    let noted = json!({"metadata": {"annotations": {"note": note}}});
    let (params, patch) = (PatchParams::default(), Patch::Merge(noted));
    world.plugins().patch(&id(1), &params, &patch).await.unwrap();
    eventually("a pass", SOON, async || {
        let reads = reads(world, mark, "configmaps").await;
        if reads.is_empty() {
            Err("nothing was read")
        } else {
            Ok(())
        }
    })
    .await;
    reads_until_quiet(world, mark).await
}

/// The reads of `ConfigMap`s since `mark`, when there are no more of them.
async fn reads_until_quiet(world: &World, mark: AuditMark) -> Vec<String> {
    let look = async || reads(world, mark, "configmaps").await;
    settled("the reads", Duration::from_secs(2), SOON, look).await
}

/// Edits the object all the time, without an effect on fields of the plugin.
async fn edit(configs: &Api<DynamicObject>, name: &str, times: usize) {
    for number in 0..times {
        let patch = Patch::Merge(json!({"data": {"tenant": number.to_string()}}));
        configs.patch(name, &PatchParams::default(), &patch).await.unwrap();
    }
}

#[tokio::test]
async fn objects_with_the_label_that_no_plugin_names_cost_nothing() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let namespaces = world.objects("v1", "namespaces", "Namespace", None);
    world.put(&namespaces, &shapes::namespace("tenant")).await;
    let objects: Vec<Value> = (0..OBJECTS)
        .map(|number| config(&format!("own-{number}"), "1"))
        .collect();
    world.offer(1, "1.0.0", &json!([objects]));
    let running = world.run_through(&proxy).await;
    world.is_ready(1, "1.0.0").await;
    let before = reads_of_a_pass(&world, "before").await;

    flood(&world, "tenant", STRANGERS).await;
    let mark = world.plane().audit_mark().await;
    let theirs = world.objects("v1", "configmaps", "ConfigMap", Some("tenant"));
    edit(&theirs, "a-stranger-00000", 100).await;
    assert_eq!(
        reads_until_quiet(&world, mark).await,
        [""; 0],
        "their edits start passes"
    );
    assert_eq!(reads_of_a_pass(&world, "flooded").await, before);

    // A watch that relists shows none of them.
    let mark = world.plane().audit_mark().await;
    proxy.expire_watches();
    let read = reads_until_quiet(&world, mark).await;
    assert!(
        read.iter()
            .any(|uri| uri.contains("limit=1&") || uri.ends_with("limit=1")),
        "{read:?}"
    );
    assert!(!read.iter().any(|uri| uri.contains("continue=")), "{read:?}");
    assert!(read.len() < 10, "{read:?}");

    // In the plugin's own namespace, the pages are not read to their end.
    flood(&world, "default", IN_THE_SAME_NAMESPACE).await;
    let found = reads_of_a_pass(&world, "the same namespace").await;
    assert!(!found.iter().any(|uri| uri.contains("continue=")), "{found:?}");
    assert!(found.len() <= OBJECTS + 1, "{found:?}");
    edit(&world.configs(), "a-stranger-00000", 5).await;
    world.delete(&world.configs(), "own-3").await;
    world.config_is("own-3", Some("1")).await;
    world.is_ready(1, "1.0.0").await;
    reads_until_quiet(&world, mark).await;

    // Neither are Secrets of theirs held because of the label of stored versions.
    let watches = proxy.open_watches();
    assert!(
        !watches.iter().any(|path| path.contains("/api/v1/secrets")),
        "{watches:?}"
    );
    let mut secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}});
    secret["metadata"]["labels"] = json!({PLUGIN_STORE_LABEL: id(1)});
    let secret: Secret = serde_json::from_value(secret).unwrap();
    let mark = world.plane().audit_mark().await;
    let secrets: Api<Secret> = Api::namespaced(world.client(), "tenant");
    secrets.create(&PostParams::default(), &secret).await.unwrap();
    assert_eq!(reads_until_quiet(&world, mark).await, [""; 0]);
    running.stop().await;
}

/// `TIDEWAITER_STRANGERS=100000` has more of them, and `--nocapture` shows what was measured. Alone in its process, it
/// measures the memory of the coordinator as well.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the size is set for one run by hand")]
async fn beside_a_tenant_who_edits_labelled_objects_changes_take_effect_soon() {
    const ROUNDS: usize = 10;
    let by_hand = std::env::var("TIDEWAITER_STRANGERS").ok();
    let strangers = by_hand.as_ref().map_or(STRANGERS, |count| count.parse().unwrap());
    let world = World::start().await;
    let namespaces = world.objects("v1", "namespaces", "Namespace", None);
    world.put(&namespaces, &shapes::namespace("tenant")).await;
    flood(&world, "tenant", strangers).await;
    let objects: Vec<Value> = (0..OBJECTS)
        .map(|number| config(&format!("own-{number}"), "1"))
        .collect();
    world.offer(1, "1.0.0", &json!([objects]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let theirs = world.objects("v1", "configmaps", "ConfigMap", Some("tenant"));
    let edits = async {
        loop {
            edit(&theirs, "a-stranger-00000", 1).await;
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let changes = async {
        let mut longest = Duration::ZERO;
        for round in 0..ROUNDS {
            let value = format!("{}", round + 2);
            let begun = now();
            world.offer(2, &format!("{value}.0.0"), &json!([[config("other", &value)]]));
            world.config_is("other", Some(&value)).await;
            let of_cloud = begun.elapsed();
            let begun = now();
            world.delete(&world.configs(), "own-1").await;
            world.config_is("own-1", Some("1")).await;
            longest = longest.max(of_cloud).max(begun.elapsed());
        }
        longest
    };
    let longest = tokio::select! {
        () = edits => unreachable!("it has no end"),
        longest = changes => longest,
    };
    // Of this process: the coordinator and the test.
    let memory = Memory::of(std::process::id());
    println!("{strangers} labelled objects: changes take effect within {longest:?}; {memory:?}");
    assert!(by_hand.is_none() || memory.anonymous < 200.0, "{memory:?}");
    running.stop().await;
}

#[tokio::test]
async fn an_object_of_the_plugin_that_changes_all_the_time_starts_few_passes() {
    const EDITS: usize = 400;
    let world = World::start().await;
    let objects: Vec<Value> = (0..OBJECTS)
        .map(|number| config(&format!("own-{number}"), "1"))
        .collect();
    world.offer(1, "1.0.0", &json!([objects]));
    world.offer(2, "1.0.0", &json!([[config("other", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.is_ready(2, "1.0.0").await;
    reads_until_quiet(&world, world.plane().audit_mark().await).await;
    let (mark, begun) = (world.plane().audit_mark().await, now());
    let configs = world.configs();
    edit(&configs, "own-1", EDITS).await;
    let lists = async || {
        let read = reads(&world, mark, "configmaps").await;
        read.iter().filter(|uri| uri.contains("labelSelector")).count()
    };
    let passes = lists().await;
    let most = 45 + usize::try_from(begun.elapsed().as_secs()).unwrap() / 2;
    assert!(
        passes <= most,
        "{passes} passes for {EDITS} edits in {:?}",
        begun.elapsed()
    );

    // The cloud's changes do not wait for that, neither of this plugin nor of another.
    let editing = edit(&configs, "own-1", 1_000_000);
    let changes = async {
        let objects: Vec<Value> = (0..OBJECTS)
            .map(|number| config(&format!("own-{number}"), "2"))
            .collect();
        world.offer(1, "2.0.0", &json!([objects]));
        world.offer(2, "2.0.0", &json!([[config("other", "2")]]));
        world.config_is("other", Some("2")).await;
        world.config_is("own-1", Some("2")).await;
    };
    tokio::select! {
        () = editing => panic!("it ends before the changes take effect"),
        () = changes => {}
    }
    // The last edit is seen.
    world.is_ready(1, "2.0.0").await;
    let drift = Patch::Merge(json!({"data": {"a": "changed"}}));
    configs.patch("own-1", &PatchParams::default(), &drift).await.unwrap();
    world.config_is("own-1", Some("2")).await;
    running.stop().await;
}

#[tokio::test]
async fn a_plugin_is_healthy_when_its_objects_are_and_waits_for_their_watch() {
    let world = World::start().await;
    let labels = json!({"app": "web"});
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web"}]}}}});
    world.offer(1, "1.0.0", &json!([[deployment]]));
    let running = world.run(PluginSettings::default()).await;
    let message = world.condition(1, "1.0.0", "Ready", "False Unhealthy").await;
    assert!(message.contains("Deployment.apps default/web"), "{message}");
    world.condition(1, "1.0.0", "Reconciling", "True InProgress").await;
    let mark = world.plane().audit_mark().await;
    settled("the reads", Duration::from_secs(12), SOON, async || {
        reads(&world, mark, "deployments").await
    })
    .await;
    let status = json!({"status": {"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "availableReplicas": 1, "readyReplicas": 1,
        "conditions": [{"type": "Available", "status": "True", "reason": "r", "message": "m"}]}});
    let deployments = world.objects("apps/v1", "deployments", "Deployment", Some("default"));
    let patch = Patch::Merge(status);
    deployments
        .patch_status("web", &PatchParams::default(), &patch)
        .await
        .unwrap();
    world.is_ready(1, "1.0.0").await;
    running.stop().await;
}

#[tokio::test]
async fn a_version_that_its_definition_does_not_serve_is_tried_less_and_less_often() {
    let world = World::start().await;
    let widget = json!({"apiVersion": "unserved.example.com/v2", "kind": "Widget", "metadata": {"name": "w"}});
    world.offer(1, "1.0.0", &json!([[definition("unserved.example.com"), widget]]));
    let running = world.run(PluginSettings::default()).await;
    world.condition(1, "1.0.0", "Ready", "False Prerequisites").await;
    world.is_quiet_for(Duration::from_secs(2)).await;
    let (mark, begun) = (world.plane().audit_mark().await, now());
    let tried = async || match reads(&world, mark, "customresourcedefinitions").await.len() {
        tried if tried >= 4 => Ok(()),
        tried => Err(tried),
    };
    eventually("four more passes", SOON, tried).await;
    assert!(begun.elapsed() > Duration::from_secs(5), "{:?}", begun.elapsed());

    // A change of the definition is seen at once.
    let definitions = world.objects("apiextensions.k8s.io/v1", "customresourcedefinitions", "", None);
    world.delete(&definitions, "widgets.unserved.example.com").await;
    world
        .shows(&definitions, "widgets.unserved.example.com", |found| !found.is_null())
        .await;
    running.stop().await;
}

#[tokio::test]
async fn a_plugin_goes_on_when_its_missing_namespace_is_created() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[in_namespace(config("one", "1"), "later")]]));
    let mark = world.plane().audit_mark().await;
    let running = world.run(PluginSettings::default()).await;
    world.condition(1, "1.0.0", "Stalled", "True ApplyFailed").await;
    eventually("seven attempts", SOON, async || {
        let audit = world.plane().audit().await.since(mark).by(&coordinator());
        match audit.of("configmaps").writes().count() {
            tried if tried >= 7 => Ok(()),
            tried => Err(tried),
        }
    })
    .await;
    // The next attempt would be 16 s later at the earliest: the change of the inventory started one of these.
    let namespaces = world.objects("v1", "namespaces", "Namespace", None);
    world.put(&namespaces, &shapes::namespace("later")).await;
    let created = now();
    let configs = world.objects("v1", "configmaps", "ConfigMap", Some("later"));
    world.shows(&configs, "one", |found| !found.is_null()).await;
    assert!(created.elapsed() < Duration::from_secs(13), "{:?}", created.elapsed());
    world.is_ready(1, "1.0.0").await;
    running.stop().await;
}
