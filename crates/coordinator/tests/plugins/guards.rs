//! The identity that a plugin uses.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, Patch, PatchParams};
use kube::core::DynamicObject;
use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::{ByPlugin, PluginSettings};
use tidewaiter_testkit::eventually;

use crate::cluster::{SOON, coordinator, deploy};
use crate::world::{World, config, id, in_namespace};

fn config_in(namespace: &str, name: &str, value: &str) -> Value {
    in_namespace(config(name, value), namespace)
}

fn admin_of_all() -> Value {
    json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "all"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": "system:authenticated"}]})
}

fn bindings(world: &World) -> Api<DynamicObject> {
    world.objects(
        "rbac.authorization.k8s.io/v1",
        "clusterrolebindings",
        "ClusterRoleBinding",
        None,
    )
}

#[tokio::test]
async fn a_plugin_is_applied_and_removed_as_its_service_account() {
    let world = World::with_accounts().await;
    let monitoring = world.objects("v1", "configmaps", "ConfigMap", Some("monitoring"));
    let account = || "containership-core/plugin-metrics".parse().unwrap();
    let (first, third, fourth) = (id(1), id(3), id(4));
    let settings = || PluginSettings {
        accounts: ByPlugin::from([
            (first.as_str(), account()),
            (
                third.as_str(),
                "containership-core/tidewaiter-coordinator".parse().unwrap(),
            ),
            (fourth.as_str(), account()),
        ]),
        ..PluginSettings::default()
    };
    let mark = world.plane().audit_mark().await;
    world.offer(1, "1.0.0", &json!([[config_in("monitoring", "one", "1")]]));
    world.offer(2, "1.0.0", &json!([[config_in("monitoring", "two", "1")]]));
    world.offer(3, "1.0.0", &json!([[config_in("monitoring", "three", "1")]]));
    world.offer(
        4,
        "1.0.0",
        &json!([[config_in("monitoring", "four", "1"), admin_of_all()]]),
    );
    let running = world.run(settings()).await;
    world.is_ready(1, "1.0.0").await;
    world.shows(&monitoring, "one", |found| found["data"]["a"] == "1").await;

    // One without a row is not applied with the rights of the coordinator, and neither is one whose account may not be
    // impersonated.
    for (number, words) in [
        (2, "pluginServiceAccounts has no row for it"),
        (
            3,
            "Permit the coordinator to impersonate the service account containership-core/tidewaiter-coordinator",
        ),
        (4, "ClusterRoleBinding.rbac.authorization.k8s.io all"),
    ] {
        let message = world.condition(number, "1.0.0", "Stalled", "True Denied").await;
        assert!(message.contains(words), "{message} does not contain {words}");
    }
    world.shows(&bindings(&world), "all", Value::is_null).await;

    // What the account may not do is said of each object, and keeps no other of its group.
    world.offer(
        1,
        "1.1.0",
        &json!([[config_in("monitoring", "one", "2"), config("elsewhere", "1")]]),
    );
    let message = world.condition(1, "1.1.0", "Stalled", "True Denied").await;
    for words in [
        "ConfigMap default/elsewhere",
        "containership-core/plugin-metrics",
        "Permit it",
    ] {
        assert!(message.contains(words), "{message} does not contain {words}");
    }
    world.shows(&monitoring, "one", |found| found["data"]["a"] == "2").await;
    world.config_is("elsewhere", None).await;

    // Nothing was written where the account may not read, so nothing is to be removed there. A restart does not forget
    // the account.
    world.offer(1, "1.2.0", &json!([[config_in("monitoring", "one", "3")]]));
    world.is_ready(1, "1.2.0").await;
    running.stop().await;
    let running = world.run(settings()).await;
    world.withdraw(1);
    world.shows(&monitoring, "one", Value::is_null).await;
    world.is_forgotten(1).await;
    let all = world.plane().audit().await.since(mark).by(&coordinator());
    let own = all.filter(|entry| {
        let object = &entry.object_ref;
        entry.impersonated_user.is_none()
            && ["configmaps", "clusterrolebindings"].contains(&object.resource.as_str())
            && entry.response_status.code != 403
    });
    let own: Vec<String> = own
        .iter()
        .map(|entry| format!("{} {}", entry.verb, entry.uri))
        .collect();
    assert_eq!(
        own, [""; 0],
        "requests about objects of plugins with the rights of the coordinator"
    );
    running.stop().await;
}

#[tokio::test]
async fn without_the_permission_to_apply_plugins_each_says_so() {
    let world = World::without_rights().await;
    world.offer(1, "1.0.0", &json!([[config("one", "1")]]));
    let _running = world.run(PluginSettings::default()).await;
    let message = world.condition(1, "1.0.0", "Stalled", "True Denied").await;
    for words in ["ConfigMap default/one", "deploy/coordinator/plugins"] {
        assert!(message.contains(words), "{message} does not contain {words}");
    }
    world.event(&id(1), "Denied").await;
    world.config_is("one", None).await;
    world.give_rights().await;
    world.is_ready(1, "1.0.0").await;
    world.config_is("one", Some("1")).await;
}

#[tokio::test]
async fn without_the_definitions_of_this_version_nothing_is_applied() {
    let world = World::start().await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.client());
    let name = "plugininventories.tidewaiter.dev";
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/kinds";
    let without = json!([{"op": "remove", "path": spec}]);
    let without = Patch::<()>::Json(serde_json::from_value(without).unwrap());
    definitions
        .patch(name, &PatchParams::default(), &without)
        .await
        .unwrap();
    let probe = json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "PluginInventory", "metadata": {"name": "probe"},
        "spec": {"kinds": []}});
    let dry = PatchParams {
        dry_run: true,
        ..PatchParams::apply("test")
    };
    let is_known = async || {
        let inventories = world.inventories();
        inventories.patch("probe", &dry, &Patch::Apply(&probe)).await.is_ok()
    };
    eventually("the field to be unknown", SOON, async || {
        (!is_known().await).then_some(()).ok_or("it is known")
    })
    .await;

    world.offer(1, "1.0.0", &json!([[config("a", "1")]]));
    let running = world.run(PluginSettings::default()).await;
    world
        .says(&id(1), "WriteRejected", "unknown field \"spec.kinds\"")
        .await;
    world.says(&id(1), "WriteRejected", "tidewaiter crds").await;
    assert!(world.labelled(1).await.unwrap().is_empty());

    running.stop().await;
    world.plane().apply_manifests(deploy("crds/coordinator")).await;
    eventually("the field to be known", SOON, async || {
        is_known().await.then_some(()).ok_or("it is unknown")
    })
    .await;
    let _running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
}
