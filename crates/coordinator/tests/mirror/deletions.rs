//! A list that lacks what the cloud has deletes nothing that cannot come back at once.

use std::time::Duration;

use kube::api::{Api, DeleteParams, ListParams};
use serde_json::{Value, json};
use tidewaiter_api::CloudSync;
use tidewaiter_api::containership::Plugin;
use tidewaiter_api::names::{CLOUD_LIST_LABEL, cloud_list_secret};
use tidewaiter_coordinator::mirror::MassDeletion;
use tidewaiter_testkit::eventually;

use crate::objects::Kind;
use crate::script::{Answer, Script, id, label, registry, user};
use crate::world::{NAMESPACE, SOON, World, names};

const LISTS: [&str; 4] = ["/ssh-users", "/registries", "/labels", "/plugins"];

fn objects(list: &str, numbers: impl IntoIterator<Item = usize>) -> Vec<Value> {
    let object = |number: usize| match list {
        "/ssh-users" => user(number, "Ada"),
        "/registries" => registry(number, "hunter2 secret"),
        "/plugins" => Kind::Plugin.object(number, 1),
        _ => label(number, "a"),
    };
    numbers.into_iter().map(object).collect()
}

/// The numbers of users, registries, labels and plugins.
async fn counts(world: &World) -> [usize; 4] {
    let all = ListParams::default();
    let plugins: Api<Plugin> = Api::namespaced(world.client(), NAMESPACE);
    [
        world.users().list(&all).await.unwrap().items.len(),
        world.registries().list(&all).await.unwrap().items.len(),
        world.labels().list(&all).await.unwrap().items.len(),
        plugins.list(&all).await.unwrap().items.len(),
    ]
}

/// Waits until there are these numbers of objects.
async fn are(world: &World, wanted: [usize; 4]) {
    eventually(format!("{wanted:?} objects"), SOON, async || {
        match counts(world).await {
            found if found == wanted => Ok(()),
            found => Err(format!("{found:?}")),
        }
    })
    .await;
}

#[tokio::test]
async fn a_wrong_list_deletes_nothing_and_needs_no_person_when_it_is_right_again() {
    let mut world = World::start().await;
    world.mass_deletion = MassDeletion::Release;
    for size in [1, 3, 9] {
        for list in LISTS {
            world.cloud.list(list, objects(list, 0..size));
        }
        let running = world.coordinator().await;
        world.condition("Synced", "True Applied").await;
        are(&world, [size; 4]).await;
        let mark = world.plane.audit_mark().await;
        for wrong in [0..0, 1..size, 0..(size - 1) / 2, 100..100 + size, 100..200] {
            for list in LISTS {
                world.cloud.list(list, objects(list, wrong.clone()));
            }
            let message = world.condition("Held", "True DeletionsHeld").await;
            assert!(message.contains("held since 2"), "{message}");
            for list in LISTS {
                world.polled(list, 2).await;
            }
            assert_eq!(counts(&world).await, [size; 4], "{wrong:?} in place of {size}");
            for list in LISTS {
                world.cloud.list(list, objects(list, 0..size));
            }
            world.condition("Held", "False NothingHeld").await;
        }
        let writes = world.written_since(mark).await;
        let is_ours = |write: &String| write.contains("cloudsyncs") || write.contains("secrets tidewaiter-list-");
        assert!(writes.iter().all(is_ours), "{writes:?}");
        running.stop().await;
    }
}

#[tokio::test]
async fn the_last_object_goes_when_the_record_names_it() {
    let world = World::start().await;
    world.cloud.list("/plugins", objects("/plugins", [1]));
    let _running = world.coordinator().await;
    are(&world, [0, 0, 0, 1]).await;
    // A record of another object or kind confirms nothing, nor does one that cannot be read, nor does none. A cloud
    // that had one is not older than the record.
    for (record, why) in [
        (absent(), "without a record"),
        (Answer::List(Vec::new()), "does not name"),
        (Answer::Exactly(500, vec![], String::new()), "cannot be read"),
        (Answer::List(Vec::new()), "does not name"),
        (absent(), "cannot be read"),
    ] {
        world.cloud.set("/deletions", record);
        world.cloud.list("/plugins", []);
        eventually(format!("{why} in Held"), SOON, async || {
            let message = world.condition("Held", "True DeletionsHeld").await;
            let is_told = message.contains(why) && message.contains("`tidewaiter release Plugin`");
            is_told.then_some(()).ok_or(message)
        })
        .await;
    }
    world.cloud.deleted("labels", [1]);
    world.polled("/deletions", 2).await;
    assert_eq!(counts(&world).await, [0, 0, 0, 1]);
    world.cloud.deleted("plugins", [1]);
    are(&world, [0; 4]).await;
    world.condition("Held", "False NothingHeld").await;
}

/// The answer of a cloud that is older than the record of deletions.
fn absent() -> Answer {
    let body = json!({"code": 404, "message": "not found"}).to_string();
    Answer::Exactly(404, vec![("content-type", "application/json")], body)
}

#[tokio::test]
async fn what_the_record_does_not_name_stays_and_the_rest_of_the_list_is_in_force() {
    let world = World::start().await;
    world.cloud.list("/labels", objects("/labels", 0..5));
    let _running = world.coordinator().await;
    are(&world, [0, 0, 5, 0]).await;
    world.cloud.deleted("labels", [0]);
    world.cloud.list("/labels", objects("/labels", 2..6));
    let has = async |numbers: &[usize]| {
        let wanted: Vec<String> = numbers.iter().map(|number| id(*number)).collect();
        eventually(format!("the labels {numbers:?}"), SOON, async || {
            let found = names(world.labels().list(&ListParams::default()).await.unwrap());
            if found == wanted {
                Ok(())
            } else {
                Err(format!("{found:?}"))
            }
        })
        .await;
    };
    has(&[1, 2, 3, 4, 5]).await;
    let message = world.condition("Held", "True DeletionsHeld").await;
    let told = "ClusterLabel would be deleted, which the record of deletions in the cloud does not name, held since";
    assert!(message.contains(told), "{message}");
    world.polled("/labels", 3).await;
    has(&[1, 2, 3, 4, 5]).await;
    world.cloud.deleted("labels", [1]);
    has(&[2, 3, 4, 5]).await;
    world.condition("Held", "False NothingHeld").await;
}

/// Since when the deletions of a kind are held, and how many.
async fn held(world: &World, kind: &str) -> Option<(jiff::Timestamp, u32)> {
    let status = world.sync().await.status?;
    let held = status.kinds.into_iter().find(|found| found.kind == kind)?.held?;
    Some((held.since, held.objects))
}

/// Waits until this many deletions of a kind are held; returns since when.
async fn holds(world: &World, kind: &str, objects: u32) -> jiff::Timestamp {
    eventually(format!("{objects} held {kind}"), SOON, async || {
        match held(world, kind).await {
            Some((since, found)) if found == objects => Ok(since),
            found => Err(format!("{found:?}")),
        }
    })
    .await
}

#[tokio::test]
async fn a_held_binding_is_shown_with_the_names_of_its_role_and_user() {
    let world = World::start().await;
    world.cloud.list("/ssh-users", [user(1, "Ada")]);
    world.cloud.list("/roles", [Kind::Role.object(1, 1)]);
    let mut of_team = Kind::RoleBinding.object(2, 1);
    (of_team["type"], of_team["user_id"]) = (json!("TeamBinding"), Value::Null);
    of_team["team_id"] = json!(id(7));
    world
        .cloud
        .list("/role-bindings", [Kind::RoleBinding.object(1, 1), of_team]);
    let _running = world.coordinator().await;
    world.condition("Synced", "True Applied").await;
    world.cloud.list("/role-bindings", []);
    holds(&world, "AuthorizationRoleBinding", 2).await;
    let kinds = world.sync().await.status.unwrap().kinds.into_iter();
    let names: Vec<String> = kinds.filter_map(|kind| kind.held).flat_map(|held| held.names).collect();
    // The cloud lists neither the other role nor the names of teams.
    let (first, second, team) = (id(1), id(2), id(7));
    let expected = [
        format!("role Reader of user Ada in v1 ({first})"),
        format!("role {second} of team {team} in v1 ({second})"),
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn what_ten_intervals_hold_stays_held_in_the_next_process_and_adds_what_is_new() {
    let mut world = World::start().await;
    world.interval = Duration::from_secs(5);
    world.cloud.list("/ssh-users", objects("/ssh-users", 0..9));
    let running = world.coordinator().await;
    are(&world, [9, 0, 0, 0]).await;
    world.cloud.replace("/ssh-users", objects("/ssh-users", 4..9));
    are(&world, [5, 0, 0, 0]).await;
    world.cloud.replace("/ssh-users", objects("/ssh-users", 6..9));
    let since = holds(&world, "User", 2).await;
    let message = world.condition("Held", "True DeletionsHeld").await;
    assert!(
        message.contains("2 of 5 User would be deleted, after 4 that were"),
        "{message}"
    );
    // The list lacks less than half of what there is: it is that of this cluster.
    let listed = || objects("/ssh-users", (6..9).chain([20]));
    world.cloud.list("/ssh-users", listed());
    are(&world, [6, 0, 0, 0]).await;
    holds(&world, "User", 2).await;
    world.quiet().await;
    running.stop().await;
    for _ in 0..2 {
        let mark = world.cloud.requests("/ssh-users");
        let running = world.coordinator().await;
        eventually("three lists", SOON, async || {
            let asked = world.cloud.requests("/ssh-users") - mark;
            if asked >= 3 { Ok(()) } else { Err(asked) }
        })
        .await;
        assert_eq!(held(&world, "User").await, Some((since, 2)));
        assert_eq!(counts(&world).await, [6, 0, 0, 0]);
        running.stop().await;
    }
    // The list has them again.
    let running = world.coordinator().await;
    world
        .cloud
        .list("/ssh-users", objects("/ssh-users", (4..9).chain([20])));
    world.condition("Held", "False NothingHeld").await;
    running.stop().await;
}

#[tokio::test]
async fn a_hold_outlasts_the_secrets_and_cloud_sync_and_the_process() {
    let world = World::start().await;
    let secrets = ListParams::default().labels(CLOUD_LIST_LABEL);
    let stored = cloud_list_secret("registries", 0);
    world.cloud.list("/registries", objects("/registries", 0..10));
    let mut running = Some(world.coordinator().await);
    are(&world, [0, 10, 0, 0]).await;
    world.cloud.replace("/registries", objects("/registries", 0..3));
    holds(&world, "Registry", 7).await;
    for stops_first in [false, true, false] {
        if let Some(running) = running.take_if(|_| stops_first) {
            running.stop().await;
        }
        let syncs: Api<CloudSync> = Api::all(world.client());
        syncs.delete("cloud", &DeleteParams::default()).await.unwrap();
        world
            .secrets()
            .delete_collection(&DeleteParams::default(), &secrets)
            .await
            .unwrap();
        let before = match running.take() {
            Some(running) => running,
            None => world.coordinator().await,
        };
        eventually("the list to be stored again", SOON, async || {
            let found = world.secrets().get_opt(&stored).await.unwrap();
            found.map(drop).ok_or("there is none")
        })
        .await;
        holds(&world, "Registry", 7).await;
        before.stop().await;
        running = Some(world.coordinator().await);
        world.polled("/registries", 3).await;
        assert_eq!(counts(&world).await, [0, 10, 0, 0], "stopped first: {stops_first}");
        holds(&world, "Registry", 7).await;
    }
}

/// An interval after which nothing is polled within a test, however slow the machine is.
const NEVER: Duration = Duration::from_hours(1);

#[tokio::test]
async fn what_a_wrong_list_deletes_is_back_soon_without_an_announcement() {
    let mut world = World::with(Script::start(true).await).await;
    world.interval = NEVER;
    world.cloud.set("/deletions", absent());
    world.cloud.list("/labels", objects("/labels", 0..3));
    let _running = world.coordinator().await;
    are(&world, [0, 0, 3, 0]).await;
    world.cloud.list("/labels", objects("/labels", 0..2));
    world.cloud.changed(&["labels"]);
    are(&world, [0, 0, 2, 0]).await;
    world.cloud.list("/labels", objects("/labels", 0..3));
    are(&world, [0, 0, 3, 0]).await;
}

#[tokio::test]
async fn a_wrong_list_with_the_etag_of_the_right_one_is_not_confirmed_by_304() {
    let world = World::start().await;
    let list = |tag, numbers| Answer::Tagged(tag, objects("/labels", numbers));
    world.cloud.set("/labels", list("\"1\"", 0..3));
    let _running = world.coordinator().await;
    are(&world, [0, 0, 3, 0]).await;
    world.cloud.set("/labels", list("\"2\"", 0..0));
    world.condition("Held", "True DeletionsHeld").await;
    world.cloud.set("/labels", list("\"2\"", 0..4));
    world.condition("Held", "False NothingHeld").await;
    are(&world, [0, 0, 4, 0]).await;
}

#[tokio::test]
async fn a_record_that_was_read_once_is_remembered_over_a_restart() {
    let world = World::start().await;
    world.cloud.list("/labels", objects("/labels", 0..9));
    let running = world.coordinator().await;
    are(&world, [0, 0, 9, 0]).await;
    world.cloud.replace("/labels", objects("/labels", 0..8));
    are(&world, [0, 0, 8, 0]).await;
    world.condition("Synced", "True Applied").await;
    running.stop().await;
    // Less than half: without a record, they would go at once.
    world.cloud.set("/deletions", absent());
    world.cloud.list("/labels", objects("/labels", 0..6));
    let _running = world.coordinator().await;
    let message = world.condition("Held", "True DeletionsHeld").await;
    assert!(message.contains("cannot be read"), "{message}");
    world.polled("/labels", 2).await;
    assert_eq!(counts(&world).await, [0, 0, 8, 0]);
}

#[tokio::test]
async fn a_list_that_waits_for_the_record_is_visible() {
    let mut world = World::start().await;
    world.timeout = Duration::from_mins(1);
    world.cloud.list("/labels", objects("/labels", 0..3));
    let _running = world.coordinator().await;
    are(&world, [0, 0, 3, 0]).await;
    world.condition("Synced", "True Applied").await;
    world.cloud.set("/deletions", Answer::Silence);
    world.cloud.list("/labels", objects("/labels", 0..2));
    let message = world.condition("Synced", "False ListFailed").await;
    assert!(message.contains("ClusterLabel: the record of deletions"), "{message}");
    assert_eq!(counts(&world).await, [0, 0, 3, 0]);
}
