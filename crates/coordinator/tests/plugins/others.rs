//! Objects that are not the plugin's, and persons who may not decide about plugins.

use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::{PluginSettings, PluginSync};
use tidewaiter_testkit::{Action, ApiProxy, ApiRequest, Gate, Recorded, eventually};

use crate::cluster::{SOON, coordinator};
use crate::world::{World, config, id};

#[tokio::test]
async fn objects_of_others_stay_and_a_plugin_that_fails_keeps_no_other() {
    let world = World::start().await;
    let theirs = world.put(&world.configs(), &config("theirs", "theirs")).await;
    world.offer(1, "1.0.0", &json!([[config("theirs", "1"), config("own", "1")]]));
    world.offer(2, "1.0.0", &json!([[config("second", "1")]]));
    let strange = json!({"apiVersion": "nowhere.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    world.offer(3, "1.0.0", &json!([[strange]]));
    // An object that the API server refuses.
    let bad =
        json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "bad"}, "spec": {"ports": [{"port": 0}]}});
    world.offer(4, "1.0.0", &json!([[bad]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(2, "1.0.0").await;
    let message = world.condition(1, "1.0.0", "Stalled", "True ForeignObject").await;
    assert!(message.contains("ConfigMap default/theirs"), "{message}");
    assert_eq!(world.event(&id(1), "ForeignObject").await, message);
    world.condition(3, "1.0.0", "Stalled", "True UnknownKind").await;
    world.condition(4, "1.0.0", "Stalled", "True ApplyFailed").await;
    world.config_is("own", Some("1")).await;
    // One plugin cannot have the objects of another.
    world.offer(5, "1.0.0", &json!([[config("second", "5")]]));
    let message = world.condition(5, "1.0.0", "Stalled", "True ForeignObject").await;
    assert!(message.contains(&id(2)), "{message}");
    world.config_is("second", Some("1")).await;

    // When the plugins go, what is not theirs stays as it was.
    for number in [1, 5] {
        world.withdraw(number);
    }
    world.config_is("own", None).await;
    world.config_is("second", Some("1")).await;
    let after = world.configs().get("theirs").await.unwrap();
    assert_eq!(after.metadata.resource_version, theirs.metadata.resource_version);
    running.stop().await;
}

#[tokio::test]
async fn a_plugin_that_hangs_delays_no_other() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let gate = Gate::new();
    let held = gate.clone();
    let hangs = |request: &ApiRequest| request.path.ends_with("/configmaps/hangs") && request.is_write();
    proxy.on(hangs, move || Action::Hold(held.clone()));
    let _running = world.run_through(&proxy).await;
    world.offer(1, "1.0.0", &json!([[config("hangs", "1")]]));
    eventually("the write that hangs", SOON, async || {
        if gate.held() == 1 {
            Ok(())
        } else {
            Err("it is not there")
        }
    })
    .await;
    world.offer(2, "1.0.0", &json!([[config("second", "1")]]));
    world.is_ready(2, "1.0.0").await;
    assert_eq!(gate.held(), 1, "the second one waited for the first one");
    let message = world.condition(1, "1.0.0", "Reconciling", "True Applying").await;
    assert!(message.contains("version 1.0.0 is being applied"), "{message}");
    let is_status = |asked: &Recorded| asked.path.ends_with(&format!("/plugins/{}/status", id(1)));
    assert_eq!(proxy.count(is_status), 1, "it is said once");
    gate.open();
    world.is_ready(1, "1.0.0").await;
}

#[tokio::test]
async fn only_the_cloud_decides_which_plugins_there_are() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;

    // A plugin that the cloud does not list has no effect, although the cloud would answer.
    world.offer(9, "1.0.0", &json!([[config("forged", "1")]]));
    world.withdraw(9);
    let forged = json!({"apiVersion": "containership.io/v3", "kind": "Plugin", "metadata": {"name": id(9)},
        "spec": {"id": id(9), "type": "CNI", "version": "1.0.0", "implementation": "calico"}});
    let plugins = world.objects("containership.io/v3", "plugins", "Plugin", Some("containership-core"));
    world.put(&plugins, &forged).await;
    world.shows(&plugins, &id(9), Value::is_null).await;

    // One that somebody deletes in the cluster is restored, and loses nothing meanwhile.
    let before = world.configs().get("one").await.unwrap();
    world.delete(&world.plugins(), &id(1)).await;
    world.is_ready(1, "1.0.0").await;
    world.is_quiet().await;
    let after = world.configs().get("one").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version);
    world.config_is("forged", None).await;
    running.stop().await;

    // While plugins are not synced, they are left as they are.
    let settings = PluginSettings {
        sync: PluginSync::None,
        ..PluginSettings::default()
    };
    let _running = world.run(settings).await;
    world.offer(1, "2.0.0", &json!([[config("one", "2")]]));
    world
        .shows(&plugins, &id(1), |found| found["spec"]["version"] == "2.0.0")
        .await;
    world.is_quiet().await;
    world.config_is("one", Some("1")).await;
}
