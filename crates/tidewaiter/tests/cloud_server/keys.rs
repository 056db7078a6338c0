//! Keys change while the server runs: what was signed and sealed before stays good, and what an old key opened goes
//! with it.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use tidewaiter_testkit::eventually;

use crate::ledger::Ledger;
use crate::world::{Ask, Land, On, Place, SOON, Server, content};

/// Tells the server to read its files again.
fn hang_up(server: &Server) {
    let pid = Pid::from_raw(server.process.pid().cast_signed()).unwrap();
    kill_process(pid, Signal::HUP).unwrap();
}

/// The files of the signing keys, the oldest first.
fn signing_keys(place: &Place) -> Vec<PathBuf> {
    let files = fs::read_dir(place.data.join("keys")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Makes a key as old as that: a new one would sign in an hour.
fn date(key: &PathBuf, when: &str) {
    let name = key.file_name().unwrap().to_str().unwrap();
    let (_, id) = name.split_once('-').unwrap();
    fs::rename(key, key.with_file_name(format!("{when}-{id}"))).unwrap();
}

/// The part of a token that names its key.
fn head(token: &str) -> &str {
    token.split('.').next().unwrap()
}

async fn published(server: &Server, keys: usize) {
    eventually("the published keys to be so many", SOON, async || {
        let found = server.get("", "/.well-known/jwks.json").await.is(200).json();
        let found = found["keys"].as_array().unwrap().len();
        if found == keys { Ok(()) } else { Err(found) }
    })
    .await;
}

#[tokio::test]
async fn tokens_outlive_a_rotation_and_go_with_their_key() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.serve().await;
    let old = server.log_in().await;
    let (code, said) = place.run(&["keys", "rotate"]).await;
    assert_eq!(code, 0, "{said}");
    hang_up(&server);
    published(&server, 2).await;
    server.get(&old, "/v3/account").await.is(200);
    assert_eq!(
        head(&server.log_in().await),
        head(&old),
        "the new key signs when everybody knows it"
    );

    // Years later.
    let keys = signing_keys(&place);
    date(&keys[1], "20200102T000000Z");
    date(&keys[0], "20200101T000000Z");
    hang_up(&server);
    let new = eventually("the new key to sign", SOON, async || {
        let token = server.log_in().await;
        if head(&token) == head(&old) {
            Err("the old one does")
        } else {
            Ok(token)
        }
    })
    .await;
    server.get(&old, "/v3/account").await.is(200);
    server.process.stop(SOON).await;
    let server = place.serve().await;
    for token in [&old, &new] {
        server.get(token, "/v3/account").await.is(200);
    }

    // The old one has signed nothing that is valid still, as far as its file says.
    let (code, said) = place.run(&["keys", "retire"]).await;
    assert_eq!((code, said.as_str()), (0, "removed 1 signing keys\n"));
    hang_up(&server);
    published(&server, 1).await;
    server.get(&old, "/v3/account").await.is(401);
    server.get(&new, "/v3/account").await.is(200);
}

#[tokio::test]
async fn credentials_are_sealed_anew_and_the_old_key_can_go() {
    let place = Place::new(On::Sqlite).await;
    place.init().await;
    let server = place.serve().await;
    let land = Land::make(&server).await;
    let registries = format!("{}/registries", land.organization);
    for name in ["one", "two", "three"] {
        let registry = json!({"description": name, "provider": "private", "serveraddress": "registry.example.org", "credentials": {"username": "u", "password": format!("hunter-{name}")}});
        server.post(&land.token, &registries, &registry).await.is(201);
    }
    // An answer that is remembered, with a key in it that is shown once.
    let clusters = format!("{}/clusters", land.organization);
    let attach = async |server: &Server| {
        let body = json!({"name": "again"});
        let ask = Ask {
            idempotency_key: Some("once"),
            ..Ask::body(&body)
        };
        server.send(&land.token, Method::POST, &clusters, ask).await.unwrap()
    };
    let attached = attach(&server).await.is(201);
    let sealed = async |name: &str| {
        let ledger = Ledger::read(&content(&place.backup(name).await));
        let secrets = ledger.secrets.into_iter();
        let secrets: BTreeMap<_, _> = secrets.filter(|((kind, _), _)| kind == "registries").collect();
        assert_eq!(secrets.len(), 3);
        (secrets, ledger.changes.len())
    };
    let (before, changes) = sealed("before").await;
    let (code, said) = place.run(&["keys", "reseal"]).await;
    assert_eq!(code, 0, "{said}");
    let file = place.data.join("sealing-keys");
    let keys = content(&file);
    let [new, old] = keys.lines().collect::<Vec<_>>()[..] else {
        panic!("two keys")
    };
    hang_up(&server);
    eventually("the server to say that everything is sealed anew", SOON, async || {
        let log = server.process.log();
        let says = |line: &str| line.contains("all credentials are encrypted") && line.contains(&new[..8]);
        if log.lines().any(says) { Ok(()) } else { Err(log) }
    })
    .await;
    let (after, count) = sealed("after").await;
    // Nothing that anybody sees changes.
    assert_eq!(count, changes);
    // The first bytes are the key's id.
    for (key, secret) in &after {
        assert_ne!(secret[..6], before[key][..6], "{key:?}");
    }
    fs::copy(&file, place.scratch.path().join("old-keys")).unwrap();
    rewrite(&file, &format!("{new}\n"));
    let readable = async |server: &Server| {
        let list = server.get(&land.token, &registries).await.is(200).json();
        let passwords = list
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["credentials"]["password"].as_str().unwrap().to_owned());
        assert_eq!(
            passwords.collect::<Vec<_>>(),
            ["hunter-one", "hunter-two", "hunter-three"]
        );
        let again = attach(server).await.is(201);
        assert_eq!(
            (&again.body, &again.headers["idempotency-replayed"]),
            (&attached.body, &"true".parse().unwrap())
        );
    };
    hang_up(&server);
    readable(&server).await;
    server.process.stop(SOON).await;
    // With the old key alone nothing could be read, and what is new could not be read with the right ones later.
    rewrite(&file, &format!("{old}\n"));
    let (code, said) = place.run(&["serve"]).await;
    assert!(code == 2 && said.contains("does not contain the key"), "{said}");
    rewrite(&file, &format!("{new}\n"));
    readable(&place.serve().await).await;
}

/// The file stays its owner's alone.
fn rewrite(file: &PathBuf, content: &str) {
    fs::write(file, content).unwrap();
}
