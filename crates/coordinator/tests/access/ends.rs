//! Bindings that end: by the clock of the machine, whatever becomes of the cloud and of the custom resource.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::{AuthorizationRoleBindingSpec, AuthorizationRoleSpec};
use tidewaiter_coordinator::controllers::RbacSettings;
use tidewaiter_kit::{Clock as _, SystemClock};

use crate::cloud::{ANN, BOB, EVERYWHERE, ROLE, Scene, binding};
use crate::forged::leaves;
use crate::objects;
use crate::world::{World, apply, apply_as, id, on};

const ENDING: usize = 13;

const PODS: (&str, &str, &str) = ("get", "pods", "");

/// The end that is this number of seconds from now.
fn end_in(seconds: i64) -> Timestamp {
    let end = SystemClock.now() + SignedDuration::from_secs(seconds);
    Timestamp::from_second(end.as_second()).unwrap()
}

#[tokio::test]
async fn a_binding_ends_stays_for_people_to_see_and_is_bound_again_when_it_is_put_off() {
    let world = World::start().await;
    let (role, name) = (id(), id());
    world.role(&role, &[on(&["pods"], &["get"])]).await;
    let _running = world.run(RbacSettings::default()).await;
    let bind = async |end: Timestamp| {
        let spec = json!({"id": name, "type": "UserBinding", "authorization_role_id": role, "user_id": "ann",
            "expires_at": end.to_string()});
        apply(
            &world.bindings(),
            &name,
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await;
    };
    bind(end_in(3_600)).await;
    world.becomes("ann", PODS, true).await;
    let end = end_in(3);
    bind(end).await;
    world.becomes("ann", PODS, false).await;
    assert!(SystemClock.now() >= end, "it ended before {end}");
    let made: Api<ClusterRoleBinding> = world.all();
    world.is_gone(&made, &name).await;
    let note = world.event(&name, "BindingEnded").await;
    assert!(note.contains(&end.to_string()), "{note}");
    assert!(world.bindings().get_opt(&name).await.unwrap().is_some(), "it stays");
    bind(end_in(3_600)).await;
    world.becomes("ann", PODS, true).await;
}

#[tokio::test]
async fn a_binding_ends_without_the_cloud_and_without_its_definition() {
    let scene = Scene::start().await;
    let binds = |end: Timestamp| {
        let mut ending = binding(ENDING, ROLE, BOB, None);
        ending["expires_at"] = json!(end.to_string());
        scene.binds([binding(EVERYWHERE, ROLE, ANN, None), ending]);
    };
    binds(end_in(3_600));
    let _running = scene.world.mirrors(&scene.cloud).await;
    let (ann, bob) = (objects::id(ANN), objects::id(BOB));
    scene.world.becomes(&bob, PODS, true).await;
    let end = end_in(5);
    binds(end);
    let is_shorter = |found: &Value| found["spec"]["expires_at"] == end.to_string();
    scene
        .world
        .shows(&scene.world.bindings(), &objects::id(ENDING), is_shorter)
        .await;
    leaves(&scene);
    let definitions: Api<CustomResourceDefinition> = scene.world.all();
    let definition = "authorizationrolebindings.auth.containership.io";
    definitions.delete(definition, &DeleteParams::default()).await.unwrap();
    scene.world.becomes(&bob, PODS, false).await;
    assert!(SystemClock.now() >= end, "it ended before {end}");
    scene.world.is_gone(&definitions, definition).await;
    scene.world.define().await;
    assert!(
        scene.world.may(&ann, &[], "get", "pods", "").await,
        "the other one is still bound"
    );
}

#[tokio::test]
async fn an_end_that_only_the_copy_has_outlives_its_edit() {
    let scene = Scene::start().await;
    let world = &scene.world;
    leaves(&scene);
    let (role, ann, bob) = (objects::id(ROLE), objects::id(ANN), objects::id(BOB));
    // Of a copy of the mirror, it has written all fields.
    let spec: AuthorizationRoleSpec =
        serde_json::from_value(json!({"id": role, "rules": [on(&["pods"], &["get"])]})).unwrap();
    let copy = json!({"metadata": {"name": role}, "spec": spec});
    apply_as("tidewaiter/sync-roles", &world.roles(), &role, copy).await;
    let bind = async |manager: &str, number: usize, user: &str, end: Timestamp| {
        let name = objects::id(number);
        let spec = json!({"id": name, "type": "UserBinding", "authorization_role_id": role, "user_id": user,
            "expires_at": end.to_string()});
        let spec: AuthorizationRoleBindingSpec = serde_json::from_value(spec).unwrap();
        let copy = json!({"metadata": {"name": name}, "spec": spec});
        apply_as(manager, &world.bindings(), &name, copy).await;
    };
    let mirror = "tidewaiter/sync-role-bindings";
    let _running = world.mirrors(&scene.cloud).await;
    bind(mirror, ENDING, &bob, end_in(3_600)).await;
    world.becomes(&bob, PODS, true).await;
    bind(mirror, ENDING, &bob, end_in(5)).await;
    // Another binding takes effect after the end was seen.
    bind(mirror, EVERYWHERE, &ann, end_in(3_600)).await;
    world.becomes(&ann, PODS, true).await;
    bind("kubectl", ENDING, &bob, end_in(7_200)).await;
    world.becomes(&bob, PODS, false).await;
}
