//! Bindings that end: by the clock of the machine, whatever becomes of the cloud and of the custom resource.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams};
use serde_json::json;
use tidewaiter_coordinator::controllers::RbacSettings;
use tidewaiter_kit::{Clock as _, SystemClock};

use crate::cloud::{ANN, BOB, EVERYWHERE, ROLE, Scene, binding};
use crate::objects;
use crate::script::Answer;
use crate::world::{World, apply, id, on};

const ENDING: usize = 13;

/// An end so many seconds from now.
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
    let pods = ("get", "pods", "");
    let end = end_in(20);
    bind(end).await;
    world.becomes("ann", pods, true).await;
    world.becomes("ann", pods, false).await;
    assert!(SystemClock.now() >= end, "it ended before {end}");
    let made: Api<ClusterRoleBinding> = world.all();
    world.is_gone(&made, &name).await;
    let note = world.event(&name, "BindingEnded").await;
    assert!(note.contains(&end.to_string()), "{note}");
    assert!(world.bindings().get_opt(&name).await.unwrap().is_some(), "it stays");
    bind(end_in(3_600)).await;
    world.becomes("ann", pods, true).await;
}

#[tokio::test]
async fn a_binding_ends_without_the_cloud_and_without_its_definition() {
    let scene = Scene::start().await;
    let mut ending = binding(ENDING, ROLE, BOB, None);
    let end = end_in(30);
    ending["expires_at"] = json!(end.to_string());
    scene.binds([binding(EVERYWHERE, ROLE, ANN, None), ending]);
    let _running = scene.world.mirrors(&scene.cloud).await;
    let (ann, bob) = (objects::id(ANN), objects::id(BOB));
    scene.world.becomes(&bob, ("get", "pods", ""), true).await;
    scene
        .cloud
        .set("/role-bindings", Answer::Exactly(503, vec![], String::new()));
    let definitions: Api<CustomResourceDefinition> = scene.world.all();
    let definition = "authorizationrolebindings.auth.containership.io";
    definitions.delete(definition, &DeleteParams::default()).await.unwrap();
    scene.world.becomes(&bob, ("get", "pods", ""), false).await;
    assert!(SystemClock.now() >= end, "it ended before {end}");
    scene.world.is_gone(&definitions, definition).await;
    scene.world.define().await;
    assert!(
        scene.world.may(&ann, &[], "get", "pods", "").await,
        "the other one is still bound"
    );
}
