//! Plugins that depend on others.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::PluginSettings;
use tidewaiter_testkit::{Action, ApiProxy, ApiRequest, Gate};

use crate::cluster::coordinator;
use crate::world::{World, config, definition, id};

fn offer(world: &World, number: usize, depends_on: &[usize], manifests: &Value) {
    let depends_on: Vec<String> = depends_on.iter().map(|number| id(*number)).collect();
    let body = json!({"version": "1.0.0", "manifests": manifests, "depends_on": depends_on});
    world.offer_text(number, "1.0.0", body.to_string());
}

#[tokio::test]
async fn a_plugin_waits_for_those_that_it_depends_on_and_goes_before_them() {
    let world = World::start().await;
    // It is ready when somebody says so.
    let widgets = world.objects("depends.example.com/v1", "widgets", "Widget", Some("default"));
    let base = config("base", "1");
    let widget = json!({"apiVersion": "depends.example.com/v1", "kind": "Widget", "metadata": {"name": "w"}});
    offer(&world, 1, &[2], &json!([[config("top", "1")]]));
    offer(
        &world,
        2,
        &[],
        &json!([[definition("depends.example.com"), base, widget]]),
    );
    offer(&world, 3, &[], &json!([[config("beside", "1")]]));
    offer(&world, 4, &[9], &json!([[config("alone", "1")]]));
    offer(&world, 5, &[6], &json!([[config("five", "1")]]));
    offer(&world, 6, &[5], &json!([[config("six", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world.shows(&widgets, "w", |found| !found.is_null()).await;
    let status = |ready: &str| {
        let condition = json!({"type": "Ready", "status": ready, "reason": "r", "message": "m"});
        Patch::Merge(json!({"status": {"conditions": [condition]}}))
    };
    widgets
        .patch("w", &PatchParams::default(), &status("False"))
        .await
        .unwrap();
    world.condition(2, "1.0.0", "Ready", "False Unhealthy").await;
    offer(&world, 7, &[2], &json!([[config("later", "1")]]));
    let message = world.condition(7, "1.0.0", "Ready", "False DependencyNotReady").await;
    assert!(message.contains(&id(2)), "{message}");
    world.config_is("later", None).await;
    world.is_ready(3, "1.0.0").await;
    let message = world.condition(4, "1.0.0", "Stalled", "True DependencyMissing").await;
    assert!(message.contains(&id(9)), "{message}");
    for number in [5, 6] {
        let message = world
            .condition(number, "1.0.0", "Stalled", "True DependencyCycle")
            .await;
        assert!(message.contains(&id(11 - number)), "{message}");
    }
    widgets
        .patch("w", &PatchParams::default(), &status("True"))
        .await
        .unwrap();
    for number in [1, 2, 7] {
        world.is_ready(number, "1.0.0").await;
    }
    world.config_is("top", Some("1")).await;

    // Both go, and what depends on the other goes first, also when it takes its time.
    let configs = world.configs();
    let finalizers = |all: Value| Patch::Merge(json!({"metadata": {"finalizers": all}}));
    configs
        .patch("top", &PatchParams::default(), &finalizers(json!(["example.com/f"])))
        .await
        .unwrap();
    for number in [1, 2, 7] {
        world.withdraw(number);
    }
    world.is_forgotten(7).await;
    let note = world.event(&id(2), "RemovalWaits").await;
    assert!(note.contains(&id(1)), "{note}");
    world.config_is("base", Some("1")).await;
    configs
        .patch("top", &PatchParams::default(), &finalizers(Value::Null))
        .await
        .unwrap();
    for number in [1, 2] {
        world.is_forgotten(number).await;
    }
    world.config_is("base", None).await;
    running.stop().await;
}

/// The condition about the dependency is replaced when the first write hangs, for example in an admission webhook.
#[tokio::test]
async fn a_plugin_that_has_waited_says_that_it_is_applied_slowly() {
    let world = World::start().await;
    let proxy = ApiProxy::start(world.plane(), &coordinator());
    let hold = |name: &str| {
        let (gate, end) = (Gate::new(), format!("/configmaps/{name}"));
        let held = gate.clone();
        let is_write = move |request: &ApiRequest| request.path.ends_with(&end) && request.is_write();
        proxy.on(is_write, move || Action::Hold(held.clone()));
        gate
    };
    let base = hold("base");
    let running = world.run_through(&proxy).await;
    offer(&world, 1, &[2], &json!([[config("top", "1")]]));
    offer(&world, 2, &[], &json!([[config("base", "1")]]));
    world
        .condition(1, "1.0.0", "Reconciling", "True DependencyNotReady")
        .await;
    let top = hold("top");
    base.open();
    world.condition(1, "1.0.0", "Reconciling", "True Applying").await;
    top.open();
    world.is_ready(1, "1.0.0").await;
    running.stop().await;
}
