//! The first steps of a new server.

use serde_json::json;

use crate::world::{PASSWORD, World, on_both};

const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIIFSjIL8j1rY4cUhqd7cyLRV+y01dVXDdDSVbjbRI6Kr alice@example";

on_both!(
    an_owner_fills_an_organization_and_a_cluster_reads_it,
    a_changed_password_ends_what_was_begun_with_the_old_one,
    who_is_logged_out_changes_no_password,
);

async fn an_owner_fills_an_organization_and_a_cluster_reads_it(world: World) {
    world.get("", "/v3/account").await.is(401);
    let token = world.owner().await;
    let account = world.get(&token, "/v3/account").await.is(200).json();
    assert_eq!(account["email"], "olivia@example.org");
    assert_eq!(
        world.get(&token, "/v3/organizations").await.is(200).json()[0]["name"],
        "Acme"
    );

    let alice = world
        .post(
            &token,
            "~/users",
            json!({"name": "Alice", "email": "alice@example.org"}),
        )
        .await
        .is(201);
    let path = format!("~/users/{}/ssh_keys", alice.field("id"));
    world
        .post(&token, &path, json!({"name": "laptop", "key": KEY}))
        .await
        .is(201);
    world
        .post(&token, &path, json!({"name": "again", "key": KEY}))
        .await
        .is(409);

    let registry = json!({"description": "ours", "provider": "private", "serveraddress": "registry.example.org", "credentials": {"username": "u", "password": "hunter2"}});
    let registry = world.post(&token, "~/registries", registry).await.is(201);
    assert_eq!(registry.json()["credentials"]["password"], "hunter2");

    let cluster = world.post(&token, "~/clusters", json!({"name": "prod"})).await.is(201);
    let key = cluster.field("api_key");
    let inside = format!("~/clusters/{}", cluster.field("id"));
    world
        .post(
            &token,
            &format!("{inside}/labels"),
            json!({"key": "cluster.containership.io/team", "value": "blue"}),
        )
        .await
        .is(201);
    let pool = json!({"name": "workers", "count": 3, "kubernetes_mode": "worker", "kubernetes_version": "1.30.1", "etcd": false, "is_schedulable": true});
    let pool = world.post(&token, &format!("{inside}/node-pools"), pool).await.is(201);
    let node = world
        .post(
            &token,
            &format!("{inside}/node-pools/{}/nodes", pool.field("id")),
            json!({}),
        )
        .await
        .is(201);

    // The cluster.
    let users = world.get(&key, "~/users").await.is(200);
    assert_eq!(users.json()[1]["ssh_keys"][0]["name"], "laptop");
    let again = world
        .send(
            world
                .request(&key, reqwest::Method::GET, "~/users")
                .header("if-none-match", users.header("etag")),
        )
        .await
        .is(304);
    assert_eq!(again.body, "");
    assert_eq!(
        world.get(&key, "~/registries").await.is(200).json()[0]["credentials"]["password"],
        "hunter2"
    );
    assert_eq!(
        world.get(&key, &format!("{inside}/labels")).await.is(200).json()[0]["key"],
        "cluster.containership.io/team"
    );
    let status = json!({"status": {"type": "RUNNING", "percent": "1"}});
    world
        .put(&key, &format!("{inside}/nodes/{}/status", node.field("id")), status)
        .await
        .is(200);
    world
        .post(
            &key,
            &format!("{inside}/labels"),
            json!({"key": "cluster.containership.io/a", "value": "b"}),
        )
        .await
        .is(403);
    world.get(&key, "~/audit").await.is(403);

    let audit = world.get(&token, "~/audit").await.is(200);
    assert!(
        !audit.body.contains("hunter2") && !audit.body.contains(&key),
        "{}",
        audit.body
    );
    assert_eq!(audit.json()[0]["kind"], "nodes");

    // What changes is seen at once, and an edit that changes nothing changes nothing.
    let label = world.get(&token, &format!("{inside}/labels")).await.json()[0].clone();
    let path = format!("{inside}/labels/{}", label["id"].as_str().unwrap());
    let same = world.put(&token, &path, label.clone()).await.is(200);
    assert_eq!(same.json(), label);
    world.patch(&token, &path, json!({"value": "green"})).await.is(200);
    assert_eq!(
        world.get(&key, &format!("{inside}/labels")).await.is(200).json()[0]["value"],
        "green"
    );
    world.delete(&token, &path).await.is(204);
    assert_eq!(world.get(&key, &format!("{inside}/labels")).await.is(200).body, "[]");
}

/// A login whose password was verified, and is another one before its token is kept, keeps none.
async fn a_changed_password_ends_what_was_begun_with_the_old_one(world: World) {
    let owner = world.owner().await;
    for turn in 0..4 {
        let name = format!("Alice{turn}");
        let (id, _) = world.user(&owner, &world.organization, &name, "member").await;
        let email = format!("alice{turn}@example.org");
        let (path, other) = (
            format!("~/users/{id}/password"),
            json!({"password": "another good password"}),
        );
        // Passwords are hashed two at a time, in the order in which they come: most logins are verified after the
        // change.
        let logins = (0..12).map(|_| world.log_in(&email, PASSWORD));
        let (changed, logins) = futures::join!(world.put(&owner, &path, other), futures::future::join_all(logins));
        changed.is(204);
        for login in logins {
            if login.status == 200 {
                world.get(&login.field("token"), "/v3/account").await.is(401);
            } else {
                // 429 where the machine is busy: a login waits five seconds for the others of its account.
                assert!([401, 429].contains(&login.status.as_u16()), "{login:?}");
            }
        }
    }
}

/// An admin's word is the last one, no matter what anyone who has the old password and a token has under way.
async fn who_is_logged_out_changes_no_password(world: World) {
    let owner = world.owner().await;
    for turn in 0..4 {
        let name = format!("Bob{turn}");
        let (id, bob) = world.user(&owner, &world.organization, &name, "member").await;
        let path = format!("~/users/{id}/password");
        let own = json!({"old_password": PASSWORD, "new_password": "a password of the thief's"});
        let (changed, _) = futures::join!(
            world.put(&owner, &path, json!({"password": "another good password"})),
            // Verified and hashed, which takes twice as long.
            world.put(&bob, "/v3/account/password", own)
        );
        changed.is(204);
        let email = format!("bob{turn}@example.org");
        world.log_in(&email, "another good password").await.is(200);
        world.get(&bob, "/v3/account").await.is(401);
    }
}
