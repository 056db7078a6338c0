//! Nothing in the cluster empties the file by accident.

use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tidewaiter_api::CloudSync;
use tidewaiter_testkit::{Identity, throughout};

use crate::world::{Agent, KEYS, World};

/// Writes the status of the Users, as the coordinator does.
async fn mirror(world: &World, objects: u32, revision: &str, synced: &str) {
    let syncs: Api<CloudSync> = Api::all(world.cluster.client(&Identity::Admin));
    let object = json!({"apiVersion": "tidewaiter.dev/v1alpha1", "kind": "CloudSync", "metadata": {"name": "cloud"}, "spec": {}});
    let params = PatchParams::apply("test").force();
    syncs.patch("cloud", &params, &Patch::Apply(&object)).await.unwrap();
    let mut status: Value = object;
    status["status"] = json!({
        "kinds": [{"kind": "User", "objects": objects, "revision": revision, "lastSuccess": "2026-01-01T00:00:00Z"}],
        "conditions": [{"type": "Synced", "status": synced, "reason": "Applied", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    });
    syncs
        .patch_status("cloud", &params, &Patch::Apply(&status))
        .await
        .unwrap();
}

async fn remove_all(world: &World) {
    world
        .users()
        .delete_collection(&DeleteParams::default(), &ListParams::default())
        .await
        .unwrap();
}

async fn keeps(agent: &Agent, users: &[(u32, usize)]) {
    let expected = agent.expected(users);
    throughout("the file stays", Duration::from_secs(3), async || {
        let content = agent.content();
        if content == expected { Ok(()) } else { Err(content) }
    })
    .await;
}

#[tokio::test]
async fn the_last_user_is_removed_only_when_the_mirror_says_so() {
    let world = World::alone().await;
    world.user(1, &[KEYS[0]]).await;
    mirror(&world, 1, "one", "True").await;
    let agent = world.agent(&[]).await;
    agent.has(&[(1, 0)]).await;
    remove_all(&world).await;
    agent
        .report(|status| status.conditions[0].reason == "RemovalHeld")
        .await;
    world.event(&agent.node, "UserRemovalHeld").await;
    // Not by a mirror that counts nobody but has the same list, nor by one that fails.
    mirror(&world, 0, "one", "True").await;
    mirror(&world, 0, "two", "False").await;
    keeps(&agent, &[(1, 0)]).await;
    mirror(&world, 0, "two", "True").await;
    agent.has(&[]).await;
    agent
        .report(|status| status.conditions[0].reason == "Applied" && status.keys == 0)
        .await;
}

#[tokio::test]
async fn without_the_definitions_and_after_a_restart_the_keys_stay() {
    let world = World::alone().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[]).await;
    agent.has(&[(1, 0)]).await;
    let definitions: Api<CustomResourceDefinition> = Api::all(world.cluster.client(&Identity::Admin));
    for name in ["users.containership.io", "cloudsyncs.tidewaiter.dev"] {
        definitions.delete(name, &DeleteParams::default()).await.unwrap();
    }
    keeps(&agent, &[(1, 0)]).await;
    agent.process.stop(crate::world::SOON).await;
    agent.process.start_again();
    keeps(&agent, &[(1, 0)]).await;
}

#[tokio::test]
async fn a_termination_of_the_coordinator_clears_the_keys() {
    let world = World::alone().await;
    world.user(1, &[KEYS[0]]).await;
    let agent = world.agent(&[]).await;
    agent.has(&[(1, 0)]).await;
    let markers: Api<ConfigMap> = Api::namespaced(world.cluster.client(&Identity::Admin), "containership-core");
    let marker = serde_json::from_value(json!({"metadata": {"name": "tidewaiter-terminate"}})).unwrap();
    markers.create(&PostParams::default(), &marker).await.unwrap();
    remove_all(&world).await;
    agent.has(&[]).await;
}
