//! A coordinator that is started while the cloud is away keeps what is applied as it is.

use kube::api::{Patch, PatchParams};
use serde_json::json;
use tidewaiter_coordinator::controllers::PluginSettings;

use crate::objects::Kind;
use crate::script::Answer;
use crate::world::{World, config, id};

#[tokio::test]
async fn what_is_known_is_kept_as_it_is_while_the_cloud_is_away() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1"), config("two", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    running.stop().await;
    let asked = world.cloud.requests(&id(1));

    let away = || Answer::Exactly(503, Vec::new(), String::new());
    world.cloud.set(Kind::Plugin.path(), away());
    world.cloud.set(format!("/plugins/{}", id(1)), Answer::Silence);
    let configs = world.configs();
    world.delete(&configs, "one").await;
    let running = world.run(PluginSettings::default()).await;
    world.config_is("one", Some("1")).await;
    let change = Patch::Merge(json!({"data": {"a": "changed"}}));
    configs.patch("two", &PatchParams::default(), &change).await.unwrap();
    world.config_is("two", Some("1")).await;
    // The cloud was not needed, and is not asked before it says what it lists.
    assert_eq!(world.cloud.requests(&id(1)), asked);

    // Neither is the Plugin.
    world.delete(&world.plugins(), &id(1)).await;
    world.delete(&configs, "one").await;
    world.config_is("one", Some("1")).await;
    configs.patch("two", &PatchParams::default(), &change).await.unwrap();
    world.config_is("two", Some("1")).await;

    // The cloud lists its plugins again, and has no manifests.
    running.stop().await;
    world.answer(1, "1.0.0", Answer::Silence);
    let running = world.run(PluginSettings::default()).await;
    world.delete(&configs, "one").await;
    world.config_is("one", Some("1")).await;
    running.stop().await;
}
