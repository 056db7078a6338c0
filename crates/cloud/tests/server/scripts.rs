//! Scripts of upgrades that the server signs, and those that an operator has signed.
#![allow(clippy::disallowed_methods, reason = "files of the test")]

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use minisign::KeyPair;
use reqwest::Method;
use serde_json::json;
use tidewaiter_cloud::signed::{SignatureError, SigningKey, TrustedKey};
use tidewaiter_kit::SystemClock;
use tidewaiter_upgrade::signed::{Expected, Statement, Untrusted, digest, open};

use crate::fixture::{Place, SCRIPT};
use crate::world::{Answer, World};

/// A key, in a file of the world, and the public one.
fn key(world: &World, name: &str, password: Option<&str>) -> (PathBuf, TrustedKey) {
    let KeyPair { pk, sk } = match password {
        Some(password) => KeyPair::generate_encrypted_keypair(Some(password.to_owned())),
        None => KeyPair::generate_unencrypted_keypair(),
    }
    .unwrap();
    let path = world.folder.path().join(name);
    std::fs::write(&path, sk.to_box(None).unwrap().into_string()).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    (path, pk.to_base64().parse().unwrap())
}

/// The world again, with these keys.
async fn signing(mut world: World, keys: Vec<PathBuf>) -> Result<World, String> {
    world.stop().await;
    let change = |parts: &mut tidewaiter_cloud::server::ServerParts| parts.script_keys = keys;
    let served = World::served(world.database.clone(), Arc::clone(&world.folder), world.ids(), change).await;
    served.map_err(|error| tidewaiter_kit::Chain(&error).to_string())
}

async fn ask(world: &World, token: &str, place: &Place, node: &str) -> Answer {
    let path = format!(
        "~/clusters/{}/nodes/{node}/upgrade/kubernetes?version=1.30.1",
        place.of("cluster")
    );
    world.get(token, &path).await
}

/// Whether the node `node-1` of the cluster accepts the text with this key.
fn accepts(text: &str, place: &Place, key: &TrustedKey) -> Result<String, Untrusted> {
    let (node, version) = ("node-1".parse().unwrap(), "v1.30.1".parse().unwrap());
    let expected = Expected {
        keys: std::slice::from_ref(key),
        cluster: place.of("cluster"),
        node: &node,
        upgrade: place.of("upgrades"),
        version: &version,
        newest: 0,
        now: SystemClock::shared().now(),
    };
    open(text, &expected).map(|script| script.body().to_owned())
}

#[tokio::test]
async fn a_server_with_two_keys_signs_each_script_with_both_for_the_node_that_asks() {
    let world = World::sqlite().await;
    let ((old, old_trusted), (new, new_trusted)) = (key(&world, "old", None), key(&world, "new", None));
    let world = signing(world, vec![old, new]).await.unwrap();
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let place = world.fill(&owner, &world.organization, &world.owner).await;
    let served = ask(&world, place.of("key"), &place, place.of("nodes"))
        .await
        .is(200)
        .body;
    for key in [&old_trusted, &new_trusted] {
        assert_eq!(accepts(&served, &place, key).as_deref(), Ok(SCRIPT));
    }
    // A node without a name is no Node of the cluster yet.
    let pool = format!(
        "~/clusters/{}/node-pools/{}/nodes",
        place.of("cluster"),
        place.of("pool")
    );
    let nameless = world.post(&owner, &pool, json!({})).await.is(201).field("id");
    let refused = ask(&world, place.of("key"), &place, &nameless).await.is(409);
    assert!(refused.body.contains("the node has no name"), "{}", refused.body);
}

#[tokio::test]
async fn what_an_operator_has_signed_is_served_as_it_is() {
    let world = World::sqlite().await;
    let ((server, server_trusted), (offline, trusted)) = (key(&world, "server", None), key(&world, "offline", None));
    let offline = std::fs::read_to_string(offline).unwrap();
    let offline = SigningKey::read::<SignatureError>(&offline, || unreachable!("it has no password")).unwrap();
    let world = signing(world, vec![server]).await.unwrap();
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let place = world.fill(&owner, &world.organization, &world.owner).await;
    let now = SystemClock::shared().now().as_second();
    let statement = Statement {
        cluster: place.of("cluster").to_owned(),
        node: "node-1".parse().unwrap(),
        upgrade: place.of("upgrades").to_owned(),
        generation: now,
        version: "v1.30.1".parse().unwrap(),
        sha256: digest(SCRIPT),
        expires: Timestamp::from_second(now + 3600).unwrap(),
    };
    let signed = format!("{SCRIPT}{}", statement.block(&offline).unwrap());
    let path = format!(
        "~/clusters/{}/upgrades/{}/script",
        place.of("cluster"),
        place.of("upgrades")
    );
    let request = world.request(&owner, Method::PUT, &path).body(signed.clone());
    world.send(request).await.is(204);
    let text = ask(&world, place.of("key"), &place, place.of("nodes"))
        .await
        .is(200)
        .body;
    assert_eq!(text, signed);
    assert_eq!(accepts(&text, &place, &trusted).as_deref(), Ok(SCRIPT));
    assert!(matches!(
        accepts(&text, &place, &server_trusted),
        Err(Untrusted::Signature(SignatureError::UnknownKey(_)))
    ));
}

#[tokio::test]
async fn a_key_that_the_server_cannot_use_prevents_the_start() {
    for (password, mode, reason) in [
        (Some("secret"), 0o600, "it has a password"),
        (None, 0o640, "is accessible to other users"),
    ] {
        let world = World::sqlite().await;
        let (path, _) = key(&world, "key", password);
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let refused = signing(world, vec![path]).await.err().unwrap();
        assert!(refused.contains(reason) && !refused.contains("secret:"), "{refused}");
    }
}
