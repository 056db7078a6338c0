//! Somebody who may write the mirrored roles and bindings, and nothing else: no edit and no forgery is in force, not
//! for a moment.

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use tidewaiter_api::names::{CLOUD_LIST_LABEL, CONTAINERSHIP_NAMESPACE};
use tidewaiter_testkit::{Identity, eventually};

use crate::cloud::{ANN, EVE, EVERYWHERE, IN_APPS, ROLE, SECRETS, Scene, role};
use crate::objects::id;
use crate::script::Answer;
use crate::world::{SOON, World, apply_as, on};

/// The number of edits of each object.
const EDITS: usize = 100;

/// An edit, unless the object is gone for a moment, or is another one by now.
async fn edit<K>(api: &Api<K>, name: &str, spec: Value)
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    let edited = api
        .patch(name, &PatchParams::default(), &Patch::Merge(json!({ "spec": spec })))
        .await;
    match edited {
        Err(kube::Error::Api(status)) if [404, 409, 422].contains(&status.code) => {}
        edited => drop(edited.unwrap()),
    }
}

/// Edits everything again and again, so that what the mirror restores is edited a moment later.
async fn forges(world: &World) {
    let (roles, bindings) = (world.roles(), world.bindings());
    let all = [on(&["*"], &["*"])];
    let [role, secrets, everywhere, in_apps] = [ROLE, SECRETS, EVERYWHERE, IN_APPS].map(id);
    for _ in 0..EDITS {
        let gives = json!({"user_id": id(EVE), "authorization_role_id": secrets});
        let widens = json!({"namespace": "", "user_id": id(EVE)});
        tokio::join!(
            edit(&roles, &role, json!({ "rules": all })),
            edit(&roles, &secrets, json!({"rules": []})),
            edit(&bindings, &everywhere, gives),
            edit(&bindings, &in_apps, widens),
        );
    }
}

async fn eve_may(world: &World) -> Vec<&'static str> {
    let all = ["pods", "secrets", "nodes"].map(async |resource| {
        let everywhere = world.may(&id(EVE), &[], "get", resource, "").await;
        (everywhere || world.may(&id(EVE), &[], "get", resource, "apps").await).then_some(resource)
    });
    futures::future::join_all(all).await.into_iter().flatten().collect()
}

#[tokio::test]
async fn an_edit_of_a_copy_is_not_in_force_for_a_moment() {
    let scene = Scene::start().await;
    let running = scene.world.mirrors(&scene.cloud).await;
    scene.works().await;
    Box::pin(scene.nobody_loses(forges(&scene.world))).await;
    assert_eq!(eve_may(&scene.world).await, [""; 0]);

    // Nor does the one who edits delay what the cloud takes away.
    let bound: Api<ClusterRoleBinding> = scene.world.all();
    let taken = async {
        scene
            .cloud
            .list("/roles", [role(ROLE, "pods", "list"), role(SECRETS, "secrets", "get")]);
        scene.cloud.changed(&["roles"]);
        scene.world.becomes(&id(ANN), ("get", "pods", ""), false).await;
        scene.binds([]);
        scene.world.is_gone(&bound, &id(EVERYWHERE)).await;
    };
    let forging = async {
        loop {
            forges(&scene.world).await;
        }
    };
    tokio::select! {
        () = taken => {}
        () = forging => {}
    }
    assert_eq!(eve_may(&scene.world).await, [""; 0]);
    running.stop().await;
}

/// The cloud answers no more.
pub fn leaves(scene: &Scene) {
    for end in ["/roles", "/role-bindings"] {
        scene.cloud.set(end, Answer::Exactly(503, vec![], "away".to_owned()));
    }
}

/// Forges a role with all permissions and bindings to it and to another one, under this name of a field manager, and
/// edits what there is.
async fn forge(world: &World, manager: &str) {
    let all = json!([on(&["*"], &["*"])]);
    for number in [3, 4, 5, ROLE] {
        let role = json!({"metadata": {"name": id(number)}, "spec": {"id": id(number), "rules": all}});
        apply_as(manager, &world.roles(), &id(number), role).await;
    }
    for (name, role) in [(id(91), 3), (id(92), SECRETS), (id(93), 4), (id(EVERYWHERE), 3)] {
        let spec = json!({"id": name, "type": "UserBinding", "user_id": id(EVE), "authorization_role_id": id(role)});
        let forged = json!({"metadata": {"name": name}, "spec": spec});
        apply_as(manager, &world.bindings(), &name, forged).await;
    }
}

async fn permits(world: &World, role: usize) -> Value {
    let roles: Api<ClusterRole> = world.all();
    let made = roles.get_opt(&id(role)).await.unwrap();
    json!(made.and_then(|made| made.rules))
}

/// Waits until the copies of the role and of the binding are as the cloud listed them.
async fn restored(world: &World) {
    eventually("the copies of the cloud", SOON, async || {
        let role = world.roles().get_opt(&id(ROLE)).await.unwrap();
        let binding = world.bindings().get_opt(&id(EVERYWHERE)).await.unwrap();
        let verbs = role.map(|role| json!(role.spec.rules)[0]["verbs"].clone());
        let user = binding.map(|binding| binding.spec.user_id);
        if verbs == Some(json!(["get"])) && user == Some(id(ANN)) {
            Ok(())
        } else {
            Err(format!("{verbs:?} {user:?}"))
        }
    })
    .await;
}

#[tokio::test]
async fn after_a_restart_without_the_cloud_the_last_list_counts() {
    let scene = Scene::start().await;
    let world = &scene.world;
    let running = world.mirrors(&scene.cloud).await;
    scene.works().await;
    world.is_quiet().await;
    running.stop().await;
    leaves(&scene);
    let before = [permits(world, ROLE).await, permits(world, SECRETS).await];
    // Anyone who wants to deceive takes the name of the mirror.
    forge(world, "tidewaiter/sync-roles").await;
    forge(world, "tidewaiter/sync-role-bindings").await;
    let running = world.mirrors(&scene.cloud).await;
    scene.nobody_loses(restored(world)).await;
    world.delete(&world.bindings(), &id(EVERYWHERE)).await;
    world.delete(&world.roles(), &id(ROLE)).await;
    scene.nobody_loses(restored(world)).await;
    // What somebody does to what was made of them is undone, too.
    let made: Api<ClusterRoleBinding> = world.all();
    world.delete(&made, &id(EVERYWHERE)).await;
    scene.works().await;
    assert_eq!([permits(world, ROLE).await, permits(world, SECRETS).await], before);
    assert_eq!(permits(world, 3).await, Value::Null);
    assert_eq!(eve_may(world).await, [""; 0]);
    // The cloud does not say that it does not list them, so they stay, without effect, until it does.
    assert!(world.roles().get_opt(&id(3)).await.unwrap().is_some());
    running.stop().await;
}

/// Many copies of the role under names that the cloud does not give.
async fn fill(world: &World) {
    for number in 0..9 {
        let name = format!("junk-{number}");
        world.role(&name, &[on(&["*"], &["*"])]).await;
        world.bind_user(&name, &name, &id(EVE), "").await;
    }
}

#[tokio::test]
async fn after_a_restart_with_the_cloud_forged_copies_are_neither_in_force_nor_a_reason_to_hold_anything() {
    let scene = Scene::start().await;
    let world = &scene.world;
    let running = world.mirrors(&scene.cloud).await;
    scene.works().await;
    world.is_quiet().await;
    running.stop().await;
    let mark = world.cluster.audit_mark().await;
    // More than the cloud lists.
    forge(world, "tidewaiter/sync-roles").await;
    forge(world, "tidewaiter/sync-role-bindings").await;
    fill(world).await;
    let running = world.mirrors(&scene.cloud).await;
    let clean = eventually("the forged copies to be gone", SOON, async || {
        let all = ListParams::default();
        let roles = world.roles().list(&all).await.unwrap().items.len();
        let bindings = world.bindings().list(&all).await.unwrap().items.len();
        if (roles, bindings) == (2, 2) {
            Ok(())
        } else {
            Err(format!("{roles} roles and {bindings} bindings"))
        }
    });
    clean.await;
    restored(world).await;
    world.is_quiet().await;
    assert_eq!(world.access_written_since(mark).await, [""; 0]);
    assert_eq!(eve_may(world).await, [""; 0]);
    scene.works().await;
    running.stop().await;
}

#[tokio::test]
async fn without_a_list_only_what_the_mirror_wrote_counts() {
    let scene = Scene::start().await;
    let world = &scene.world;
    let running = world.mirrors(&scene.cloud).await;
    scene.works().await;
    world.is_quiet().await;
    running.stop().await;
    leaves(&scene);
    let secrets: Api<Secret> = Api::namespaced(world.cluster.client(&Identity::Admin), CONTAINERSHIP_NAMESPACE);
    let lists = ListParams::default().labels(CLOUD_LIST_LABEL);
    let deleted = secrets
        .delete_collection(&DeleteParams::default(), &lists)
        .await
        .unwrap();
    assert!(deleted.left().is_some());
    let before = permits(world, ROLE).await;
    forge(world, "kubectl").await;
    let running = world.mirrors(&scene.cloud).await;
    // What the mirror wrote takes effect: its binding is made again.
    let made: Api<k8s_openapi::api::rbac::v1::RoleBinding> = world.within("apps");
    let gone = async {
        world.delete(&made, &id(IN_APPS)).await;
        world.shows(&made, &id(IN_APPS), |found| !found.is_null()).await;
    };
    gone.await;
    scene.works().await;
    assert_eq!(permits(world, ROLE).await, before);
    assert_eq!(permits(world, 3).await, Value::Null);
    assert_eq!(eve_may(world).await, [""; 0]);
    running.stop().await;
}
