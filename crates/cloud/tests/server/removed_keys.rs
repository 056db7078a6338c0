//! A key whose file was removed is trusted no more, also the last one; a file that cannot be read costs nothing.

use std::fs;
use std::path::PathBuf;

use rustix::process::{Signal, getpid, kill_process};
use serde_json::json;
use tidewaiter_cloud::server::keys::sealing::Sealer;
use tidewaiter_cloud::server::keys::signing::KeyRing;
use tidewaiter_kit::SystemClock;
use tidewaiter_testkit::eventually;

use crate::fixture;
use crate::stream::SOON;
use crate::world::{PASSWORD, World};

/// The files of the signing keys.
fn signing_keys(world: &World) -> Vec<PathBuf> {
    let files = fs::read_dir(world.folder.path().join("keys")).unwrap();
    files.map(|file| file.unwrap().path()).collect()
}

/// Reloads the files until the server publishes this number of keys. The first reload reads all earlier changes of the
/// files.
async fn published(world: &World, keys: usize) {
    eventually("the server to publish so many keys", SOON, async || {
        kill_process(getpid(), Signal::HUP).unwrap();
        let found = world.get("", "/.well-known/jwks.json").await.is(200).json();
        let found = found["keys"].as_array().unwrap().len();
        if found == keys { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test]
async fn the_last_signing_key_goes_with_its_file() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let (path, key) = (format!("~/clusters/{}", made.field("id")), made.field("api_key"));
    let for_kubernetes = world.post(&owner, &format!("{path}/token"), json!({})).await.is(200);
    let for_kubernetes = for_kubernetes.field("token");
    for file in signing_keys(&world) {
        fs::remove_file(file).unwrap();
    }
    published(&world, 0).await;
    world.get(&owner, "/v3/account").await.is(401);
    world.get(&for_kubernetes, "/v3/authenticate").await.is(401);
    let key_login = world.post("", "/v3/login/api_key", json!({"api_key": key})).await;
    for refused in [world.log_in("olivia@example.org", PASSWORD).await, key_login] {
        let refused = refused.is(503);
        assert!(refused.body.contains("tidewaiter cloud keys rotate"), "{refused:?}");
    }
    let ready = world.get("", "/readyz").await.is(503).body;
    assert!(ready.contains("no signing key is left"), "{ready}");
    // An API key needs no signature.
    world.get(&key, &path).await.is(200);
    KeyRing::rotate(&world.folder.path().join("keys"), SystemClock::shared().now()).unwrap();
    published(&world, 1).await;
    world.get("", "/readyz").await.is(200);
    world.get(&owner, "/v3/account").await.is(401);
    let again = world.owner().await;
    world.get(&again, "/v3/account").await.is(200);
}

#[tokio::test]
async fn files_that_cannot_be_read_and_sealing_keys_stay_in_use() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    let registry = world
        .post(&owner, "~/registries", fixture::registry("one"))
        .await
        .is(201);
    let registry = format!("~/registries/{}", registry.field("id"));
    let secret = world.get(&owner, &registry).await.is(200).json()["credentials"].clone();
    assert!(secret.is_object());
    let half = fs::File::options().write(true).open(&signing_keys(&world)[0]).unwrap();
    half.set_len(20).unwrap();
    let sealing = world.folder.path().join("sealing");
    fs::remove_file(&sealing).unwrap();
    // A new key shows that the files were reloaded.
    let add = |folder: &str| {
        let other = world.folder.path().join(folder);
        KeyRing::create(&other, SystemClock::shared().now()).unwrap();
        let new = fs::read_dir(&other).unwrap().next().unwrap().unwrap().path();
        let name = new.file_name().unwrap();
        fs::rename(&new, world.folder.path().join("keys").join(name)).unwrap();
    };
    add("second");
    published(&world, 2).await;
    world.get(&owner, "/v3/account").await.is(200);
    world.get("", "/readyz").await.is(200);
    let again = world.owner().await;
    world
        .post(&again, "~/registries", fixture::registry("two"))
        .await
        .is(201);
    assert_eq!(world.get(&again, &registry).await.is(200).json()["credentials"], secret);
    // Those of another database.
    Sealer::create(&sealing).unwrap();
    add("third");
    published(&world, 3).await;
    let three = fixture::registry("three");
    world.post(&again, "~/registries", three).await.is(201);
    let all = world.get(&again, "~/registries").await.is(200).json();
    assert_eq!(all.as_array().unwrap().len(), 3);
}
