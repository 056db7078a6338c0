//! Somebody edits the copies of the cloud's plugins: nothing of that is in force, not for a moment.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::eventually;

use crate::cluster::SOON;
use crate::world::{World, config, id};

#[tokio::test]
async fn an_edited_plugin_stays_what_the_cloud_lists() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("a", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.is_quiet().await;
    let mark = world.plane().audit_mark().await;
    // But for the generation, which each edit changes.
    let status = async || {
        let mut status = world.plugins().get(&id(1)).await.unwrap().status.unwrap();
        for condition in &mut status.conditions {
            condition.observed_generation = None;
        }
        status
    };
    let before = status().await;
    let (plugins, name) = (world.plugins(), id(1));
    let edit = async |spec: serde_json::Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        plugins.patch(&name, &PatchParams::default(), &patch).await.unwrap();
    };
    for number in 0..100 {
        edit(json!({"version": format!("9.9.{number}"), "type": "CLUSTER_MANAGEMENT", "implementation": "evil"})).await;
    }
    eventually("the plugin to be restored", SOON, async || {
        let plugin = world.plugins().get(&id(1)).await.unwrap();
        if plugin.spec.version == "1.0.0" {
            Ok(())
        } else {
            Err(plugin.spec.version)
        }
    })
    .await;
    world.is_quiet().await;
    // Only the copy was written, by somebody and by the mirror.
    let written = world.written_since(mark).await;
    assert!(
        written.iter().all(|write| *write == format!("patch plugins {}", id(1))),
        "{written:?}"
    );
    assert_eq!(status().await, before);
    // The cloud is followed although somebody edits.
    world.offer(1, "2.0.0", &json!([[config("a", "2")]]));
    let forging = async {
        loop {
            edit(json!({"version": "1.0.0"})).await;
        }
    };
    tokio::select! {
        () = world.config_is("a", Some("2")) => {}
        () = forging => {}
    }
    running.stop().await;
}
