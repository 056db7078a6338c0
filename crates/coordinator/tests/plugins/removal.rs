//! What keeps a definition or a namespace when its plugin goes.

use serde_json::{Value, json};
use tidewaiter_coordinator::controllers::PluginSettings;

use crate::world::{World, config, definition, id};

fn rbac(kind: &str, rest: &Value) -> Value {
    let mut object =
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": "ordered"}});
    object
        .as_object_mut()
        .unwrap()
        .extend(rest.as_object().unwrap().clone());
    object
}

fn owned(mut object: Value, owner: &Value) -> Value {
    let mut reference = json!({"apiVersion": owner["apiVersion"], "kind": owner["kind"]});
    for field in ["name", "uid"] {
        reference[field] = owner["metadata"][field].clone();
    }
    object["metadata"]["ownerReferences"] = json!([reference]);
    object
}

#[tokio::test]
async fn instances_of_others_keep_a_definition_also_when_they_have_an_owner() {
    let world = World::start().await;
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "owned"}});
    world.offer(
        1,
        "1.0.0",
        &json!([[
            definition("theirs.example.com"),
            definition("ours.example.com"),
            namespace,
            config("own", "1")
        ]]),
    );
    let running = world.run(PluginSettings::default()).await;
    world.is_ready(1, "1.0.0").await;
    let as_json = |object| serde_json::to_value(object).unwrap();
    let widget =
        |group: &str| json!({"apiVersion": format!("{group}/v1"), "kind": "Widget", "metadata": {"name": "w"}});
    let widgets = |group: &str| world.objects(&format!("{group}/v1"), "widgets", "Widget", Some("default"));
    let (theirs, own) = (
        as_json(world.put(&world.configs(), &config("theirs", "1")).await),
        as_json(world.configs().get("own").await.unwrap()),
    );
    for (group, owner) in [("theirs.example.com", &theirs), ("ours.example.com", &own)] {
        let mut owner = owner.clone();
        (owner["apiVersion"], owner["kind"]) = (json!("v1"), json!("ConfigMap"));
        world.put(&widgets(group), &owned(widget(group), &owner)).await;
    }
    // In a namespace, what has an owner goes with that, unless that is in none.
    let roles = world.objects("rbac.authorization.k8s.io/v1", "clusterroles", "ClusterRole", None);
    let role = rbac("ClusterRole", &json!({"rules": []}));
    let mut owner = as_json(world.put(&roles, &role).await);
    (owner["apiVersion"], owner["kind"]) = (role["apiVersion"].clone(), role["kind"].clone());
    let inside = world.objects("v1", "configmaps", "ConfigMap", Some("owned"));
    world.put(&inside, &owned(config("of-a-role", "1"), &owner)).await;

    world.withdraw(1);
    world.is_forgotten(1).await;
    for words in [
        "widgets.theirs.example.com stays, because it has Widget default/w",
        "Namespace owned stays, because it has ConfigMap of-a-role",
    ] {
        world.says(&id(1), "ObjectKept", words).await;
    }
    world
        .shows(&widgets("theirs.example.com"), "w", |found| !found.is_null())
        .await;
    let definitions = world.objects("apiextensions.k8s.io/v1", "customresourcedefinitions", "", None);
    world
        .shows(&definitions, "widgets.ours.example.com", Value::is_null)
        .await;
    running.stop().await;
}
