//! The powers of somebody who may write the mirrored kinds, and the result of a pass that is overtaken.

use std::time::Duration;

use futures::future::join_all;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::ObjectMeta;
use serde_json::json;
use tidewaiter_api::containership::User;
use tidewaiter_coordinator::mirror::MassDeletion;
use tidewaiter_testkit::{eventually, settled};

use crate::script::{Script, id, label, user};
use crate::world::{SOON, World};

const FINALIZER: &str = "evil.example.org/keeps";

async fn patch(world: &World, name: &str, patch: serde_json::Value) {
    let patch = Patch::Merge(patch);
    world
        .users()
        .patch(name, &PatchParams::default(), &patch)
        .await
        .unwrap();
}

/// A User that the cloud does not list.
async fn forge(world: &World, name: String, finalizers: Option<Vec<String>>) {
    let spec = json!({"id": name, "name": "Mallory", "sshKeys": []});
    let mut forged: User = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
    forged.metadata = ObjectMeta {
        name: Some(name),
        finalizers,
        ..ObjectMeta::default()
    };
    world.users().create(&PostParams::default(), &forged).await.unwrap();
}

#[tokio::test]
async fn an_object_that_a_finalizer_keeps_is_put_right_and_reported() {
    let world = World::start().await;
    world.cloud.list("/ssh-users", [user(1, "Ada")]);
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;

    patch(&world, &id(1), json!({"metadata": {"finalizers": [FINALIZER]}})).await;
    world.users().delete(&id(1), &DeleteParams::default()).await.unwrap();
    let message = world.condition("Synced", "False DeletionBlocked").await;
    assert!(message.contains(&id(1)) && message.contains(FINALIZER), "{message}");
    let (object, note) = world.event("DeletionBlocked").await;
    assert_eq!(object, format!("User/{}", id(1)));
    assert!(note.contains(FINALIZER), "{note}");
    patch(&world, &id(1), json!({"spec": {"name": "Mallory"}})).await;
    world.users_are(&["Ada"]).await;
    // At last it is gone, and is created again.
    patch(&world, &id(1), json!({"metadata": {"finalizers": null}})).await;
    world.condition("Synced", "True Applied").await;
    world.users_are(&["Ada"]).await;
    assert!(
        world
            .users()
            .get(&id(1))
            .await
            .unwrap()
            .metadata
            .deletion_timestamp
            .is_none()
    );

    forge(&world, "forged".to_owned(), Some(vec![FINALIZER.to_owned()])).await;
    let message = world.condition("Synced", "False DeletionBlocked").await;
    assert!(message.contains("forged"), "{message}");
    patch(&world, "forged", json!({"metadata": {"finalizers": null}})).await;
    world.users_are(&["Ada"]).await;
    world.condition("Synced", "True Applied").await;
}

#[tokio::test]
async fn many_forged_objects_do_not_use_the_brake() {
    let mut world = World::with(Script::start(true).await).await;
    world.mass_deletion = MassDeletion::Release;
    let known = ["a", "b", "c", "d", "e", "f"];
    world.cloud.list(
        "/ssh-users",
        known.iter().enumerate().map(|(number, name)| user(number, name)),
    );
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    join_all((0..100).map(|number| forge(&world, format!("forged-{number}"), None))).await;
    world.users_are(&known).await;
    world.condition("Held", "False NothingHeld").await;

    // What the cloud listed is protected, however many others there are.
    world.cloud.list("/ssh-users", []);
    world.cloud.changed(&["users"]);
    world.condition("Held", "True DeletionsHeld").await;
    join_all((0..100).map(|number| forge(&world, format!("again-{number}"), None))).await;
    world.users_are(&known).await;
    world.condition("Held", "True DeletionsHeld").await;
}

const MANY: usize = 3_000;

/// The number of labels. Only one is read.
async fn labels(world: &World) -> usize {
    let one = ListParams::default().limit(1);
    let list = world.labels().list_metadata(&one).await.unwrap();
    let others = list.metadata.remaining_item_count.unwrap_or_default();
    list.items.len() + usize::try_from(others).unwrap()
}

/// Waits until a pass writes many labels.
async fn writing(world: &World) {
    world
        .cloud
        .list("/labels", (0..MANY).map(|number| label(number, "many")));
    world.cloud.changed(&["labels"]);
    world.condition("Synced", "False Applying").await;
}

#[tokio::test]
async fn a_pass_ends_when_the_cloud_lists_something_else() {
    let world = World::with(Script::start(true).await).await;
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    let mark = world.plane.audit_mark().await;
    writing(&world).await;
    world
        .cloud
        .replace("/labels", (0..3).map(|number| label(number, "few")));
    world.cloud.changed(&["labels"]);
    eventually("three labels", SOON, async || match labels(&world).await {
        3 => Ok(()),
        count => Err(count),
    })
    .await;
    world.condition("Synced", "True Applied").await;
    let writes = world.written_since(mark).await;
    let deleted = writes
        .iter()
        .filter(|write| write.starts_with("delete clusterlabels"))
        .count();
    assert!((1..MANY / 2).contains(&deleted), "{deleted} had been created");
}

#[tokio::test]
async fn a_pass_ends_when_the_controllers_pause() {
    let world = World::with(Script::start(true).await).await;
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    writing(&world).await;
    world.pause.update(|| true);
    let before = settled("the labels", Duration::from_secs(2), SOON, async || {
        labels(&world).await
    })
    .await;
    assert!(before < MANY, "{before}");
    world.pause.update(|| false);
    eventually("more labels", SOON, async || match labels(&world).await {
        count if count > before => Ok(()),
        count => Err(count),
    })
    .await;
}
