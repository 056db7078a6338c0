//! Cluster-scoped objects whose manifests have a namespace, compared with what kubectl makes of them.

use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::PluginSettings;

use crate::world::{World, config, definition, in_namespace, with};

/// API version, plural, kind and the other fields.
fn kinds() -> Vec<(&'static str, &'static str, &'static str, Value)> {
    let webhook = json!({"webhooks": []});
    vec![
        ("v1", "namespaces", "Namespace", json!({})),
        (
            "rbac.authorization.k8s.io/v1",
            "clusterroles",
            "ClusterRole",
            json!({"rules": []}),
        ),
        (
            "scheduling.k8s.io/v1",
            "priorityclasses",
            "PriorityClass",
            json!({"value": 1}),
        ),
        (
            "storage.k8s.io/v1",
            "storageclasses",
            "StorageClass",
            json!({"provisioner": "example.com/none"}),
        ),
        (
            "networking.k8s.io/v1",
            "ingressclasses",
            "IngressClass",
            json!({"spec": {"controller": "example.com/none"}}),
        ),
        (
            "admissionregistration.k8s.io/v1",
            "mutatingwebhookconfigurations",
            "MutatingWebhookConfiguration",
            webhook,
        ),
        ("everywhere.example.com/v1", "widgets", "Widget", json!({})),
    ]
}

fn object(api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    with(
        json!({"apiVersion": api_version, "kind": kind, "metadata": {"name": name}}),
        rest,
    )
}

#[tokio::test]
async fn a_cluster_scoped_object_with_a_namespace_is_what_kubectl_makes_of_it() {
    let world = World::with_controller_manager().await;
    let mut everywhere = definition("everywhere.example.com");
    everywhere["spec"]["scope"] = json!("Cluster");
    let version = |has_namespace: bool| {
        let objects = kinds().into_iter().map(|(api_version, _, kind, rest)| {
            let object = object(api_version, kind, "scoped", &rest);
            if has_namespace {
                in_namespace(object, "kube-system")
            } else {
                object
            }
        });
        let definition = if has_namespace {
            in_namespace(everywhere.clone(), "kube-system")
        } else {
            everywhere.clone()
        };
        json!([objects.chain([definition, config("beside", "1")]).collect::<Vec<_>>()])
    };
    world.offer(1, "1.0.0", &version(true));
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    world.is_quiet().await;
    let mut uids = Vec::new();
    for (api_version, plural, kind, rest) in kinds() {
        let theirs = in_namespace(object(api_version, kind, "of-kubectl", &rest), "kube-system");
        world.kubectl("apply -f -", &theirs.to_string());
        let api = world.objects(api_version, plural, kind, None);
        let [ours, theirs]: [DynamicObject; 2] =
            [api.get("scoped").await.unwrap(), api.get("of-kubectl").await.unwrap()];
        let namespaces = [&ours, &theirs].map(|object| object.metadata.namespace.clone());
        assert_eq!(namespaces, [None, None], "{kind}");
        uids.push(ours.metadata.uid);
    }
    // The namespace changes nothing: the next version has the same objects.
    world.offer(1, "2.0.0", &version(false));
    world.is_ready(1, "2.0.0").await;
    for ((api_version, plural, kind, _), uid) in kinds().into_iter().zip(uids) {
        let found = world
            .objects(api_version, plural, kind, None)
            .get("scoped")
            .await
            .unwrap();
        assert_eq!(found.metadata.uid, uid, "{kind}");
    }
    // It goes with the plugin, but for the definition: it has an object of others.
    world.offer(1, "3.0.0", &version(true));
    world.is_ready(1, "3.0.0").await;
    world.withdraw(1);
    world.is_forgotten(1).await;
    for (api_version, plural, kind, _) in kinds() {
        let api = world.objects(api_version, plural, kind, None);
        world.shows(&api, "scoped", Value::is_null).await;
    }
    running.stop().await;
}
