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
use tidewaiter_upgrade::signed::{Expected, Statement, Untrusted, digest, open, statements};

use crate::fixture::{Place, SCRIPT};
use crate::stream::SOON;
use crate::world::{Answer, World, on_both};

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

/// Returns the text if the node `node-1` of the cluster accepts it with this key.
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

/// Anyone who has the cluster can say of all nodes at once that it is their turn.
async fn the_nodes_of_a_control_plane_that_the_server_signs_for_never_have_the_same_window(world: World) {
    let (file, _) = key(&world, "key", None);
    let world = signing(world, vec![file.clone()]).await.unwrap();
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let place = world.fill(&owner, &world.organization, &world.owner).await;
    let pools = format!("~/clusters/{}/node-pools", place.of("cluster"));
    let masters = json!({"name": "masters", "count": 3, "kubernetes_mode": "master", "kubernetes_version": "1.30.1", "etcd": true,
        "is_schedulable": true});
    let pool = world.post(&owner, &pools, masters).await.is(201).field("id");
    let mut nodes = Vec::new();
    for name in ["cp-1", "cp-2", "cp-3"] {
        let node = world
            .post(&owner, &format!("{pools}/{pool}/nodes"), json!({"name": name}))
            .await;
        nodes.push(node.is(201).field("id"));
    }
    let window = async |node: &str| {
        let served = ask(&world, place.of("key"), &place, node).await.is(200).body;
        let mut statements = statements(&served).unwrap();
        assert_eq!(statements.len(), 1);
        let statement = statements.remove(0);
        (statement.not_before, statement.expires)
    };
    let now = SystemClock::shared().now();
    let windows = [
        window(&nodes[0]).await,
        window(&nodes[1]).await,
        window(&nodes[2]).await,
    ];
    let [first, second, third] = windows.map(|(begin, end)| (begin.unwrap(), end));
    assert!((first.0 - now).get_seconds().abs() < 60, "{first:?}");
    assert_eq!((second.0, third.0), (first.1, second.1));
    for (begin, end) in [first, second, third] {
        // nodeTimeoutSeconds, and a minute.
        assert_eq!((end - begin).get_seconds(), 960);
    }
    // A node that asks again has its window, and a worker none.
    assert_eq!(window(&nodes[1]).await, (Some(second.0), second.1));
    assert_eq!(window(place.of("nodes")).await.0, None);
    // Also after a restart of the server.
    let world = signing(world, vec![file]).await.unwrap();
    let again = ask(&world, place.of("key"), &place, &nodes[0]).await.is(200).body;
    assert_eq!(statements(&again).unwrap()[0].not_before, Some(first.0));
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
        not_before: None,
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

/// Every node would refuse it, and has failed then.
#[tokio::test]
async fn a_script_that_is_signed_for_something_else_is_refused_when_it_is_set() {
    let world = World::sqlite().await;
    let (file, _) = key(&world, "offline", None);
    let key = std::fs::read_to_string(file).unwrap();
    let key = SigningKey::read::<SignatureError>(&key, || unreachable!("it has no password")).unwrap();
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let place = world.fill(&owner, &world.organization, &world.owner).await;
    let (upgrade, node) = (place.of("upgrades"), place.of("nodes"));
    let now = SystemClock::shared().now().as_second();
    let right = Statement {
        cluster: place.of("cluster").to_owned(),
        node: "node-1".parse().unwrap(),
        upgrade: upgrade.to_owned(),
        generation: now,
        version: "v1.30.1".parse().unwrap(),
        sha256: digest(SCRIPT),
        not_before: None,
        expires: Timestamp::from_second(now + 3600).unwrap(),
    };
    let signed = |statement: &Statement| format!("{SCRIPT}{}", statement.block(&key).unwrap());
    let other = "0b8e4a52-13f7-4f0e-9d3c-7a6b5c4d3e2f".to_owned();
    let cut = signed(&right);
    let cut = format!("{}\n", cut.trim_end().rsplit_once('\n').unwrap().0);
    let of_all = format!("^/upgrades/{upgrade}/script");
    let of_node = format!("^/upgrades/{upgrade}/nodes/{node}/script");
    for (path, text, words) in [
        (
            &of_all,
            signed(&Statement {
                cluster: other.clone(),
                ..right.clone()
            }),
            "is signed for the cluster 0b8e4a52",
        ),
        (
            &of_all,
            signed(&Statement {
                upgrade: other,
                ..right.clone()
            }),
            "is signed for the upgrade 0b8e4a52",
        ),
        (
            &of_all,
            signed(&Statement {
                version: "v1.30.2".parse().unwrap(),
                ..right.clone()
            }),
            "is signed for the version v1.30.2, and this is v1.30.1",
        ),
        (
            &of_all,
            signed(&right).replace("echo", "echo -n"),
            "is signed for the text with the SHA-256",
        ),
        (&of_all, cut, "truncated or malformed"),
        (
            &of_node,
            signed(&Statement {
                node: "node-2".parse().unwrap(),
                ..right.clone()
            }),
            "has no signature for the node node-1",
        ),
    ] {
        let refused = set(&world, &owner, &place, path, &text).await.is(422);
        assert!(refused.body.contains(words), "{refused:?}");
        assert!(!refused.body.contains("hunter2"), "{refused:?}");
    }
    for path in [&of_all, &of_node] {
        set(&world, &owner, &place, path, &signed(&right)).await.is(204);
        set(&world, &owner, &place, path, SCRIPT).await.is(204);
    }
}

/// Sets a script at this path; in it, `^` is the cluster.
async fn set(world: &World, token: &str, place: &Place, path: &str, text: &str) -> Answer {
    let path = path.replace('^', &format!("~/clusters/{}", place.of("cluster")));
    world
        .send(world.request(token, Method::PUT, &path).body(text.to_owned()))
        .await
}

async fn the_closest_script_is_served(world: World) {
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let place = world.fill(&owner, &world.organization, &world.owner).await;
    let (cluster, node) = (place.of("cluster"), place.of("nodes"));
    let key = place.of("key");
    let upgrade = |target: &str| json!({"type": "kubernetes", "targetVersion": target, "labelSelector": [], "nodeTimeoutSeconds": 900});
    let upgrades = format!("~/clusters/{cluster}/upgrades");
    let made = world
        .post(&owner, &upgrades, upgrade("v1.32.0"))
        .await
        .is(201)
        .field("id");
    let ask = async || {
        let path = format!("~/clusters/{cluster}/nodes/{node}/upgrade/kubernetes?version=1.32.0");
        world.get(key, &path).await
    };
    let missing = ask().await.is(404);
    assert!(missing.body.contains("script-templates/VERSION"), "{}", missing.body);
    // From the farthest to the closest.
    let order = [
        "~/script-templates/any".to_owned(),
        "~/script-templates/v1.32.0".to_owned(),
        "^/script-templates/any".to_owned(),
        "^/script-templates/v1.32.0".to_owned(),
        format!("^/upgrades/{made}/script"),
        format!("^/upgrades/{made}/nodes/{node}/script"),
    ];
    for path in &order {
        let text = format!("#!/bin/sh\n# {path}\n");
        set(&world, &owner, &place, path, &text).await.is(204);
        assert_eq!(ask().await.is(200).body, text);
    }
    // Of several upgrades to a version: the one in progress, then the newest that is not over.
    let newer = world
        .post(&owner, &upgrades, upgrade("v1.32.0"))
        .await
        .is(201)
        .field("id");
    let template = format!("#!/bin/sh\n# {}\n", order[3]);
    assert_eq!(ask().await.is(200).body, template);
    // Without a template, it never gets the script of the older one.
    for path in &order[..4] {
        let path = path.replace('^', &format!("~/clusters/{cluster}"));
        world.delete(&owner, &path).await.is(204);
    }
    ask().await.is(404);
    set(&world, &owner, &place, &order[3], &template).await.is(204);
    let report = async |id: &str, state: &str| {
        let status = json!({"status": {"clusterStatus": state, "nodeStatuses": {}}});
        world.put(key, &format!("{upgrades}/{id}/status"), status).await.is(200);
    };
    let of_node = format!("#!/bin/sh\n# {}\n", order[5]);
    report(&made, "InProgress").await;
    assert_eq!(ask().await.is(200).body, of_node);
    report(&made, "Failed").await;
    assert_eq!(ask().await.is(200).body, template);
    report(&newer, "Success").await;
    assert_eq!(ask().await.is(200).body, template);
}

on_both!(
    the_closest_script_is_served,
    the_nodes_of_a_control_plane_that_the_server_signs_for_never_have_the_same_window
);

#[tokio::test]
async fn script_templates_are_listed_read_and_deleted() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let place = world.fill(&owner, &world.organization, &world.owner).await;
    let list = format!("~/clusters/{}/script-templates", place.of("cluster"));
    let one = format!("{list}/any");
    let (first, second) = ("#!/bin/sh\necho hunter2 one\n", "#!/bin/sh\necho hunter2 two\n");
    for (path, text, reason) in [
        ("^/script-templates/1.32.0", first, "target"),
        ("^/script-templates/latest", first, "or any"),
        ("^/script-templates/any", "echo\n", "#!/"),
    ] {
        let refused = set(&world, &owner, &place, path, text).await;
        assert!(
            refused.status.is_client_error() && refused.body.contains(reason),
            "{refused:?}"
        );
    }
    set(&world, &owner, &place, "^/script-templates/any", first)
        .await
        .is(204);
    set(&world, &owner, &place, "^/script-templates/any", second)
        .await
        .is(204);
    let read = world.get(&owner, &one).await.is(200);
    assert_eq!(read.body, second);
    let put = async |path: &str, header: &str, etag: &str| {
        let request = world.request(&owner, Method::PUT, path).header(header, etag);
        world.send(request.body(second)).await
    };
    let (etag, absent) = (read.header("etag"), format!("{list}/v1.33.0"));
    put(&one, "if-match", "\"another\"").await.is(412);
    put(&one, "if-match", &etag).await.is(204);
    put(&absent, "if-match", "*").await.is(412);
    world.get(&owner, &absent).await.is(404);
    // Nothing checks it, so it is refused.
    put(&one, "if-none-match", "*").await.is(400);
    let listed = world.get(&owner, &list).await.is(200);
    let shown = listed.json();
    let versions: Vec<_> = shown.as_array().unwrap().iter().map(|item| &item["version"]).collect();
    assert_eq!(versions, ["v1.31.0", "any"], "{listed:?}");
    assert_eq!(shown[1]["sha256"], digest(second));
    assert!(!listed.body.contains("hunter2"), "{listed:?}");
    let of_all = world.get(&owner, "~/script-templates").await.is(200).json();
    assert_eq!(of_all.as_array().unwrap().len(), 1);
    assert_eq!(of_all[0]["cluster_id"], json!(null));
    let audit = world.get(&owner, "~/audit").await.is(200).body;
    assert!(audit.contains(&digest(second)) && !audit.contains("hunter2"));
    world.delete(&owner, &one).await.is(204);
    world.get(&owner, &one).await.is(404);
}

/// A template is signed for the node and the upgrade that it serves, and has no signatures of its own.
#[tokio::test]
async fn a_template_is_signed_for_each_node_and_upgrade() {
    let world = World::sqlite().await;
    let (file, trusted) = key(&world, "server", None);
    let world = signing(world, vec![file]).await.unwrap();
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let mut place = world.fill(&owner, &world.organization, &world.owner).await;
    let upgrades = format!("~/clusters/{}/upgrades", place.of("cluster"));
    let upgrade =
        json!({"type": "kubernetes", "targetVersion": "v1.30.1", "labelSelector": [], "nodeTimeoutSeconds": 900});
    let text = "#!/bin/sh\necho template\n";
    set(&world, &owner, &place, "~/script-templates/any", text)
        .await
        .is(204);
    for _ in 0..2 {
        let made = world.post(&owner, &upgrades, upgrade.clone()).await.is(201).field("id");
        place.set("upgrades", made);
        let served = ask(&world, place.of("key"), &place, place.of("nodes"))
            .await
            .is(200)
            .body;
        assert_eq!(accepts(&served, &place, &trusted).as_deref(), Ok(text));
        let refused = set(&world, &owner, &place, "^/script-templates/any", &served)
            .await
            .is(422);
        assert!(
            refused.body.contains("signatures, which are for one upgrade"),
            "{refused:?}"
        );
    }
}

#[tokio::test]
async fn keys_that_sign_scripts_are_reloaded() {
    let world = World::sqlite().await;
    let (file, old) = key(&world, "server", None);
    let world = signing(world, vec![file.clone()]).await.unwrap();
    let owner = world.owner().await;
    world.catalogue(&owner).await;
    let place = world.fill(&owner, &world.organization, &world.owner).await;
    let served = async || {
        ask(&world, place.of("key"), &place, place.of("nodes"))
            .await
            .is(200)
            .body
    };
    assert_eq!(accepts(&served().await, &place, &old).as_deref(), Ok(SCRIPT));
    let reload = || rustix::process::kill_process(rustix::process::getpid(), rustix::process::Signal::HUP).unwrap();
    // A file that cannot be used: the key that was there goes on signing.
    std::fs::write(&file, "nothing").unwrap();
    reload();
    assert_eq!(accepts(&served().await, &place, &old).as_deref(), Ok(SCRIPT));
    let (_, new) = key(&world, "server", None);
    tidewaiter_testkit::eventually("the new key to sign", SOON, async || {
        reload();
        let served = served().await;
        accepts(&served, &place, &new).map_err(|error| error.to_string())
    })
    .await;
    assert!(accepts(&served().await, &place, &old).is_err());
    // A key whose file is gone signs no more, and no script is served without a signature.
    std::fs::remove_file(&file).unwrap();
    tidewaiter_testkit::eventually("the key to sign no more", SOON, async || {
        reload();
        let answer = ask(&world, place.of("key"), &place, place.of("nodes")).await;
        if answer.status == 503 {
            Ok(())
        } else {
            Err(answer.status)
        }
    })
    .await;
    let refused = ask(&world, place.of("key"), &place, place.of("nodes")).await.is(503);
    assert!(refused.body.contains("scriptKeys were removed"), "{refused:?}");
    let (_, third) = key(&world, "server", None);
    tidewaiter_testkit::eventually("the third key to sign", SOON, async || {
        reload();
        let answer = ask(&world, place.of("key"), &place, place.of("nodes")).await;
        accepts(&answer.body, &place, &third).map_err(|error| error.to_string())
    })
    .await;
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
