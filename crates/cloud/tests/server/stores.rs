//! The differences with two servers, a database that goes away, and a file that cannot be used.

use std::sync::Arc;

use serde_json::json;
use tidewaiter_testkit::eventually;

use crate::fixture;
use crate::stream::{Listening, SOON, kinds};
use crate::world::World;

#[tokio::test]
async fn what_one_server_writes_the_other_shows_and_tells_at_once() {
    let one = World::postgres().await;
    let other = one.replica().await;
    let owner = one.owner().await;
    let made = one.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let (path, key) = (format!("~/clusters/{}", made.field("id")), made.field("api_key"));
    let mut listening = Listening::to(&other, &key, &path, None).await;
    listening.heard().await;
    for turn in 0..20 {
        let (writer, reader) = if turn % 2 == 0 { (&one, &other) } else { (&other, &one) };
        assert_eq!(
            reader
                .get(&key, "~/registries")
                .await
                .is(200)
                .json()
                .as_array()
                .unwrap()
                .len(),
            turn
        );
        writer
            .post(&owner, "~/registries", fixture::registry(&format!("r{turn}")))
            .await
            .is(201);
        // At first it may not have heard yet of the cluster itself.
        while !kinds(&listening.heard().await).contains(&"registries".to_owned()) {}
        // A client that was told on one server and asks the other may come before that has heard: it is soon, not
        // never.
        eventually("the other server to show it", SOON, async || {
            let seen = reader
                .get(&key, "~/registries")
                .await
                .is(200)
                .json()
                .as_array()
                .unwrap()
                .len();
            if seen == turn + 1 { Ok(()) } else { Err(seen) }
        })
        .await;
    }
}

#[tokio::test]
async fn what_is_revoked_on_one_server_is_revoked_on_the_other() {
    let one = World::postgres().await;
    let other = one.replica().await;
    let owner = one.owner().await;
    let made = one.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let (path, key) = (format!("~/clusters/{}", made.field("id")), made.field("api_key"));
    let (user, token) = one.user(&owner, &one.organization, "Max", "member").await;
    other.get(&token, "/v3/account").await.is(200);
    let mut listening = Listening::to(&other, &key, &path, None).await;
    listening.heard().await;
    one.delete(&owner, &format!("~/users/{user}")).await.is(204);
    eventually("the other server to refuse him", SOON, async || {
        let status = other.get(&token, "/v3/account").await.status;
        if status == 401 { Ok(()) } else { Err(status) }
    })
    .await;
    let keys = one.get(&owner, &format!("{path}/api-keys")).await.is(200).json();
    let its = format!("{path}/api-keys/{}", keys[0]["id"].as_str().unwrap());
    one.delete(&owner, &its).await.is(204);
    while listening.next().await.is_some() {}
    other.get(&key, "~/users").await.is(401);
}

#[tokio::test]
async fn a_file_is_served_by_one_process() {
    let mut world = World::sqlite().await;
    let again = async |world: &World| {
        World::served(world.database.clone(), Arc::clone(&world.folder), world.ids(), |_| {}).await
    };
    let error = again(&world).await.err().expect("the file is taken").to_string();
    assert!(
        error.contains("cloud.db") && error.contains("another process uses"),
        "{error}"
    );
    world.owner().await;
    world.stop().await;
    again(&world).await.unwrap().owner().await;
}
