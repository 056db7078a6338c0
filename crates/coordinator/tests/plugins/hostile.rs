//! Manifests that no plugin may have.

use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::PluginSettings;

use crate::world::{World, config, id, in_namespace};

/// Names, manifests, the reason, and words of the message.
fn rows() -> Vec<(Value, &'static str, &'static str)> {
    let many: Vec<Value> = (0..5_000).map(|number| config(&format!("m{number}"), "1")).collect();
    let of = |api_version: &str, kind: &str, name: &str| json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}});
    let mut deep = config("deep", "1");
    for _ in 0..6 {
        deep = json!({"apiVersion": "v1", "kind": "List", "items": [deep]});
    }
    // Cluster-scoped, so the namespace has no meaning.
    let twice = [
        of("v1", "Namespace", "twice"),
        in_namespace(of("v1", "Namespace", "twice"), "kube-system"),
        config("twice", "1"),
    ];
    let mut owned = config("owned", "1");
    owned["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u"}]);
    let mut endless = config("endless", "1");
    endless["metadata"]["finalizers"] = json!(["example.com/never"]);
    let mut abroad = owned.clone();
    abroad["metadata"]["namespace"] = json!("kube-system");
    let mut generated = config("generated", "1");
    generated["metadata"]["generateName"] = json!("generated-");
    let binding = of("rbac.authorization.k8s.io/v1", "ClusterRoleBinding", "all");
    vec![
        (json!([many]), "ManifestsRefused", "at most 2000 objects"),
        (json!([[deep]]), "ManifestsRefused", "fewer lists"),
        (
            json!([[config("twice", "1"), config("twice", "2")]]),
            "ManifestsRefused",
            "ConfigMap twice",
        ),
        (json!([[generated]]), "ManifestsRefused", "generateName"),
        (
            json!([[of("v1", "ConfigMap", "Not A Name")]]),
            "ManifestsRefused",
            "DNS name",
        ),
        (json!([[owned]]), "ManifestsRefused", "ConfigMap owned"),
        (
            json!([[abroad]]),
            "ManifestsRefused",
            "metadata.ownerReferences is not permitted",
        ),
        (
            json!([[endless]]),
            "ManifestsRefused",
            "metadata.finalizers is not permitted",
        ),
        (
            json!([[of("v1", "ConfigMap", "../../etc")]]),
            "ManifestsRefused",
            "DNS name",
        ),
        (
            json!([[of("tidewaiter.dev/v1alpha1", "PluginInventory", "mine")]]),
            "ManifestsRefused",
            "Tidewaiter's own",
        ),
        (json!([[binding]]), "ManifestsRefused", "pluginDeny"),
        (
            json!([[of("containership.io/v3", "User", "eve")]]),
            "ManifestsRefused",
            "Tidewaiter's own",
        ),
        (
            json!([[of("v1", "ServiceAccount", "containership")]]),
            "ManifestsRefused",
            "Tidewaiter's own",
        ),
        (json!([twice]), "ManifestsRefused", "cluster-scoped"),
        (
            json!([[in_namespace(config("escapes", "1"), "\u{1b}[2J\u{202e}")]]),
            "ManifestsRefused",
            "ConfigMap \\u{1b}[2J\\u{202e}/escapes",
        ),
        // It is created and not stored.
        (
            json!([[of("authorization.k8s.io/v1", "SelfSubjectRulesReview", "mine")]]),
            "UnknownKind",
            "SelfSubjectRulesReview",
        ),
        (Value::Null, "ManifestsRefused", "there are none"),
    ]
}

#[tokio::test]
async fn hostile_manifests_are_refused_by_name_and_keep_no_other_plugin() {
    let world = World::start().await;
    let rows = rows();
    for (number, (manifests, ..)) in rows.iter().enumerate() {
        world.offer(number + 10, "1.0.0", manifests);
    }
    // Aliases that double eight times over: it is no JSON.
    let bomb = "a: &a [x,x]\nb: &b [*a,*a]\nc: &c [*b,*b]\nmanifests: [[*c,*c]]\n";
    world.offer_text(8, "1.0.0", bomb.to_owned());
    // Larger than anything is read.
    let large = json!([[config("large", &"x".repeat(16 * 1024 * 1024))]]);
    world.offer(7, "1.0.0", &large);
    // Nested deeper than any parser should follow.
    let nested = format!("{{\"manifests\": {}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    world.offer_text(9, "1.0.0", nested);
    world.offer(1, "1.0.0", &json!([[config("good", "1")]]));
    let settings = PluginSettings {
        deny: vec!["ClusterRoleBinding.rbac.authorization.k8s.io".to_owned()],
        ..PluginSettings::default()
    };
    let running = world.run(settings).await;
    world.is_ready(1, "1.0.0").await;
    for (number, (_, reason, words)) in rows.iter().enumerate() {
        let wanted = format!("True {reason}");
        let message = world.condition(number + 10, "1.0.0", "Stalled", &wanted).await;
        assert!(message.contains(words), "{message} does not contain {words}");
    }
    for number in [7, 8] {
        world
            .condition(number, "1.0.0", "Ready", "False ManifestsUnavailable")
            .await;
    }
    let message = world.condition(9, "1.0.0", "Stalled", "True ManifestsRefused").await;
    assert!(message.contains("manifests[0][0]: recursion limit"), "{message}");
    world.config_is("owned", None).await;
    world.config_is("twice", None).await;
    running.stop().await;
}

#[tokio::test]
async fn a_finalizer_that_never_ends_keeps_its_plugin_alone() {
    let world = World::start().await;
    world.offer(1, "1.0.0", &json!([[config("kept", "1"), config("first", "1")]]));
    world.offer(2, "1.0.0", &json!([[config("second", "1")]]));
    let _running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.is_ready(2, "1.0.0").await;
    let finalizers = |all: Value| Patch::Merge(json!({"metadata": {"finalizers": all}}));
    let (configs, params) = (world.configs(), PatchParams::default());
    configs
        .patch("kept", &params, &finalizers(json!(["example.com/never"])))
        .await
        .unwrap();
    world.withdraw(1);
    let note = world.event(&id(1), "RemovalWaits").await;
    assert!(
        note.contains("ConfigMap default/kept") && note.contains("example.com/never"),
        "{note}"
    );
    world.config_is("first", None).await;
    // The other one goes on, and so does the first when somebody ends it.
    world.offer(2, "1.1.0", &json!([[config("second", "2")]]));
    world.is_ready(2, "1.1.0").await;
    world.config_is("kept", Some("1")).await;
    configs.patch("kept", &params, &finalizers(Value::Null)).await.unwrap();
    world.is_forgotten(1).await;
    world.config_is("kept", None).await;
}
