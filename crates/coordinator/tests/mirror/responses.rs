//! A response that is not a complete list changes nothing, and is visible.

use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use tidewaiter_api::containership::{AuthorizationRole, AuthorizationRoleBinding, Plugin};

use crate::objects::Kind;
use crate::script::{Answer, id, label, registry, user};
use crate::world::{NAMESPACE, SOON, World};

const KINDS: [&str; 6] = [
    "/ssh-users",
    "/registries",
    "/labels",
    "/roles",
    "/role-bindings",
    "/plugins",
];
/// The kinds whose objects name their organization.
const OF_ORGANIZATION: [&str; 4] = ["/registries", "/roles", "/role-bindings", "/plugins"];

fn good(kind: &str) -> Vec<Value> {
    (1..=7)
        .map(|number| match kind {
            "/ssh-users" => user(number, "Ada"),
            "/registries" => registry(number, "hunter2 secret"),
            "/roles" => Kind::Role.object(number, 1),
            "/role-bindings" => Kind::RoleBinding.object(number, 1),
            "/plugins" => Kind::Plugin.object(number, 1),
            _ => label(number, "a"),
        })
        .collect()
}

fn foreign(kind: &str) -> Vec<Value> {
    let mut objects = good(kind);
    for object in &mut objects {
        object["organization_id"] = json!(id(99));
    }
    objects
}

fn exactly(status: u16, headers: &[(&'static str, &'static str)], body: &str) -> Answer {
    Answer::Exactly(status, headers.to_vec(), body.to_owned())
}

/// The numbers of objects of each kind, and of Secrets of registries.
async fn counts(world: &World) -> Vec<usize> {
    let everything = ListParams::default();
    let (roles, bindings, plugins): (Api<AuthorizationRole>, Api<AuthorizationRoleBinding>, Api<Plugin>) = (
        Api::namespaced(world.client(), NAMESPACE),
        Api::namespaced(world.client(), NAMESPACE),
        Api::namespaced(world.client(), NAMESPACE),
    );
    vec![
        world.users().list(&everything).await.unwrap().items.len(),
        world.registries().list(&everything).await.unwrap().items.len(),
        world.labels().list(&everything).await.unwrap().items.len(),
        roles.list(&everything).await.unwrap().items.len(),
        bindings.list(&everything).await.unwrap().items.len(),
        plugins.list(&everything).await.unwrap().items.len(),
        world
            .secrets()
            .list(&everything.labels("tidewaiter.dev/registry"))
            .await
            .unwrap()
            .items
            .len(),
    ]
}

#[tokio::test]
async fn a_bad_response_changes_nothing_and_is_visible() {
    let world = World::start().await;
    for kind in KINDS {
        world.cloud.list(kind, good(kind));
    }
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    assert_eq!(counts(&world).await, [7; 7]);
    let json = [("content-type", "application/json")];
    let html = [("content-type", "text/html")];
    for (what, answer) in [
        ("401", exactly(401, &json, r#"{"message": "who are you?"}"#)),
        ("403", exactly(403, &json, r#"{"message": "no"}"#)),
        ("404", exactly(404, &json, r#"{"message": "no such cluster"}"#)),
        ("204", exactly(204, &[], "")),
        ("429", exactly(429, &[("retry-after", "1")], "")),
        ("500", exactly(500, &html, "<html>oops</html>")),
        ("503", exactly(503, &[], "")),
        ("garbage", exactly(200, &json, "hunter2 garbage")),
        ("null", exactly(200, &json, "null")),
        ("an object", exactly(200, &json, "{}")),
        ("nothing", exactly(200, &json, "")),
        ("an HTML page", exactly(200, &html, "<html>log in</html>")),
        ("a redirect", exactly(302, &[("location", "http://127.0.0.1:1/")], "")),
        ("an unasked 304", exactly(304, &[], "")),
        ("half a body", Answer::Half(good("/labels"))),
        ("silence", Answer::Silence),
        // In place of this, each kind lists its own objects as those of another organization.
        ("another organization's list", Answer::List(Vec::new())),
    ] {
        let mark = world.plane.audit_mark().await;
        let is_foreign = what.starts_with("another");
        let concerned = if is_foreign { &OF_ORGANIZATION[..] } else { &KINDS[..] };
        for kind in concerned {
            if is_foreign {
                world.cloud.list(*kind, foreign(kind));
            } else {
                world.cloud.set(*kind, answer.clone());
            }
        }
        if what != "an unasked 304" {
            let message = world.condition("Synced", "False ListFailed").await;
            assert!(!message.contains("hunter2"), "{what}: {message}");
        }
        for kind in concerned {
            world.polled(kind, 1).await;
        }
        assert_eq!(counts(&world).await, [7; 7], "after {what}");
        let written = world.written_since(mark).await;
        assert!(
            written.iter().all(|write| write.contains("cloudsyncs")),
            "{what}: {written:?}"
        );
        for kind in KINDS {
            world.cloud.list(kind, good(kind));
        }
        world.condition("Synced", "True Applied").await;
    }
}

/// A request may take longer than a person wants to wait for the reason why a change does not arrive.
#[tokio::test]
async fn a_cloud_that_does_not_answer_is_reported_while_the_answer_is_awaited() {
    let mut world = World::start().await;
    world.timeout = 2 * SOON;
    world.cloud.list("/labels", good("/labels"));
    world.cloud.set("/ssh-users", Answer::Silence);
    let _running = world.coordinator().await;
    let message = world.condition("Synced", "False ListFailed").await;
    assert!(
        message.contains("User: no answer within 5s; check that the cloud at"),
        "{message}"
    );
    // The others go on meanwhile, and the silent one as soon as there is an answer on another connection.
    assert_eq!(counts(&world).await[2], 7);
}

#[tokio::test]
async fn a_connection_that_hangs_does_not_delay_a_list() {
    let mut world = World::start().await;
    world.timeout = 2 * SOON;
    world.cloud.set("/ssh-users", Answer::FirstHangs(vec![user(1, "Ada")]));
    let _running = world.coordinator().await;
    world.users_are(&["Ada"]).await;
}

#[tokio::test]
async fn a_malformed_object_stays_as_it_is_and_the_others_proceed() {
    let world = World::start().await;
    world.cloud.list("/registries", good("/registries"));
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    let mut next = good("/registries");
    next.truncate(4);
    next[0]["credentials"] = json!(["hunter2 malformed"]);
    next[1]["description"] = json!("theirs");
    world.cloud.replace("/registries", next.clone());
    let message = world.condition("Synced", "False ObjectsRefused").await;
    assert!(!message.contains("hunter2"), "{message}");
    let (_, note) = world.event("SyncRefused").await;
    assert!(note.contains("credentials") && !note.contains("hunter2"), "{note}");
    assert_eq!(counts(&world).await[1..], [4, 0, 0, 0, 0, 4]);
    assert_eq!(world.registries().get(&id(2)).await.unwrap().spec.description, "theirs");
    let secret = world.secrets().get(&format!("registry-{}", id(1))).await.unwrap();
    assert!(
        String::from_utf8(secret.data.unwrap()["credentials.json"].0.clone())
            .unwrap()
            .contains("hunter2 secret")
    );

    // One that has not even an id may be any of those that are missing: nothing is deleted.
    next.truncate(2);
    next[0] = json!({"description": "who am I?"});
    world.cloud.list("/registries", next);
    world.condition("Held", "True DeletionsHeld").await;
    assert_eq!(counts(&world).await[1..], [4, 0, 0, 0, 0, 4]);
}

#[tokio::test]
async fn a_list_of_few_where_there_were_many_is_held_until_it_is_confirmed() {
    let world = World::start().await;
    world.cloud.list("/labels", good("/labels"));
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    let mark = world.plane.audit_mark().await;
    world.cloud.replace("/labels", [label(1, "a")]);
    // The condition lasts for one interval, in which a slow machine may not look. The Event follows it, and stays.
    world.event("DeletionsHeld").await;
    world.condition("Held", "False NothingHeld").await;
    world.condition("Synced", "True Applied").await;
    assert_eq!(counts(&world).await[2], 1);
    let deleted = world.written_since(mark).await;
    let first = deleted
        .iter()
        .position(|write| write.starts_with("delete clusterlabels"))
        .unwrap();
    assert!(
        deleted[..first].iter().any(|write| write.contains("cloudsyncs")),
        "it was told first: {deleted:?}"
    );
}
