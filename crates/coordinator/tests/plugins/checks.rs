//! Health expressions of plugins.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::PluginSettings;

use crate::world::{World, config, definition};

#[tokio::test]
async fn a_plugin_says_how_its_objects_are_judged() {
    let world = World::start().await;
    let widgets = world.objects("checks.example.com/v1", "widgets", "Widget", Some("default"));
    let widget = json!({"apiVersion": "checks.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    let check = |current: &str| {
        json!({"apiVersion": "checks.example.com/v1", "kind": "Widget", "current": current,
            "failed": "status.phase == 'Broken'"})
    };
    let inert = json!({"apiVersion": "v1", "kind": "ConfigMap", "current": "data.a == 'done'"});
    let offer = |number: usize, objects: Value, checks: Value| {
        let body = json!({"version": "1.0.0", "manifests": [objects], "health_checks": checks});
        world.offer_text(number, "1.0.0", body.to_string());
    };
    offer(
        1,
        json!([definition("checks.example.com"), widget]),
        json!([check("status.phase == 'Running'")]),
    );
    offer(2, json!([config("judged", "new")]), json!([inert]));
    offer(
        3,
        json!([config("never", "1")]),
        json!([check("status.phases.map(e, e)")]),
    );
    let running = world.run(PluginSettings::default()).await;
    let message = world.condition(1, "1.0.0", "Reconciling", "True InProgress").await;
    assert!(message.contains("Widget.checks.example.com default/w"), "{message}");
    let message = world.condition(2, "1.0.0", "Healthy", "False InProgress").await;
    assert!(message.contains("ConfigMap default/judged"), "{message}");
    // A version with an expression that is not permitted is refused whole.
    let message = world.condition(3, "1.0.0", "Stalled", "True ManifestsRefused").await;
    assert!(
        message.contains("health_checks[0]: current: map is not permitted"),
        "{message}"
    );
    world.config_is("never", None).await;

    let phase = |phase: &str| Patch::Merge(json!({"status": {"phase": phase}}));
    let params = PatchParams::default();
    widgets.patch("w", &params, &phase("Broken")).await.unwrap();
    world.condition(1, "1.0.0", "Stalled", "True Failed").await;
    widgets.patch("w", &params, &phase("Running")).await.unwrap();
    world.is_ready(1, "1.0.0").await;
    running.stop().await;
}
