//! Nobody gets more power than he has, by changing a user who has it; and what is taken away is away at once.

use serde_json::json;

use crate::fixture::{self, Fixture, role, ssh_key};
use crate::world::{PASSWORD, World, on_both};

on_both!(
    an_admin_gets_no_power_over_an_owner,
    nobody_gets_power_over_who_has_it_elsewhere,
    an_organization_keeps_an_owner,
    a_cluster_is_given_no_keys_of_those_who_only_read,
    only_an_admin_of_a_cluster_terminates_it,
    who_is_deleted_is_gone_everywhere_at_once,
    what_is_not_shown_is_shown_to_nobody_else,
    who_sets_no_scripts_decides_nothing_of_them,
);

/// The mode of a pool decides when a node may run its script, and the name which host accepts it.
async fn who_sets_no_scripts_decides_nothing_of_them(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (_, max) = world.user(&olivia, &home, "Max", "member").await;
    let cluster = world.post(&olivia, "~/clusters", json!({"name": "c"})).await.is(201);
    let inside = format!("~/clusters/{}", cluster.field("id"));
    let pools = format!("{inside}/node-pools");
    let made = world.post(&olivia, &pools, fixture::pool("masters")).await.is(201);
    let pool = format!("{pools}/{}", made.field("id"));
    let nodes = format!("{pool}/nodes");
    let made = world.post(&olivia, &nodes, json!({"name": "cp1"})).await.is(201);
    let node = format!("{nodes}/{}", made.field("id"));
    let worker = json!({"kubernetes_mode": "worker"});
    world.patch(&max, &pool, worker).await.is(403);
    world.post(&max, &pools, fixture::pool("others")).await.is(403);
    world.post(&max, &nodes, json!({"name": "cp2"})).await.is(403);
    world.patch(&max, &node, json!({"name": "w1"})).await.is(403);
    for path in [&node, &pool] {
        world.delete(&max, path).await.is(403);
    }
}

/// Everything by which somebody could be somebody else: each must answer `status`.
pub async fn take_over(world: &World, token: &str, user: &str, key: &str, status: u16) {
    let user = format!("~/users/{user}");
    let password = json!({"password": "another good password"});
    world.put(token, &format!("{user}/password"), password).await.is(status);
    let added = json!({"name": "mine", "key": ssh_key()});
    world
        .post(token, &format!("{user}/ssh_keys"), added.clone())
        .await
        .is(status);
    let key = format!("{user}/ssh_keys/{key}");
    world.put(token, &key, added).await.is(status);
    world.patch(token, &key, json!({"key": ssh_key()})).await.is(status);
    world.delete(token, &key).await.is(status);
    world
        .patch(token, &user, json!({"email": "mine@example.org"}))
        .await
        .is(status);
    let whole = json!({"name": "Mine", "email": "mine@example.org"});
    world.put(token, &user, whole).await.is(status);
    world.delete(token, &user).await.is(status);
}

pub async fn key_of(world: &World, token: &str) -> String {
    let key = json!({"name": "own", "key": ssh_key()});
    world.post(token, "/v3/account/ssh_keys", key).await.is(201).field("id")
}

async fn an_admin_gets_no_power_over_an_owner(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (owner, otto) = world.user(&olivia, &home, "Otto", "owner").await;
    let (admin, anna) = world.user(&olivia, &home, "Anna", "admin").await;
    let (member, max) = world.user(&olivia, &home, "Max", "member").await;
    let key = key_of(&world, &otto).await;
    take_over(&world, &anna, &owner, &key, 403).await;
    let role = |user: &str| format!("~/users/{user}/role");
    world.put(&anna, &role(&owner), json!({"role": "member"})).await.is(403);
    for user in [&admin, &member] {
        world.put(&anna, &role(user), json!({"role": "owner"})).await.is(403);
    }
    let made = json!({"name": "New", "email": "new@example.org", "role": "owner", "password": PASSWORD});
    world.post(&anna, "~/users", made).await.is(403);
    // All of it is as it was, and what an admin may he may.
    assert_eq!(
        world.get(&otto, "/v3/account").await.is(200).json()["email"],
        "otto@example.org"
    );
    world.put(&anna, &role(&member), json!({"role": "admin"})).await.is(200);
    world
        .put(&anna, &role(&member), json!({"role": "member"}))
        .await
        .is(200);
    let key = key_of(&world, &max).await;
    world
        .patch(
            &anna,
            &format!("~/users/{member}/ssh_keys/{key}"),
            json!({"name": "his"}),
        )
        .await
        .is(200);
    let password = json!({"password": "another good password"});
    world
        .put(&anna, &format!("~/users/{member}/password"), password)
        .await
        .is(204);
    world.get(&max, "/v3/account").await.is(401);
    world.log_in("max@example.org", PASSWORD).await.is(401);
    world.log_in("max@example.org", "another good password").await.is(200);
}

async fn nobody_gets_power_over_who_has_it_elsewhere(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (_, otto) = world.user(&olivia, &home, "Otto", "owner").await;
    // The operator.
    let key = key_of(&world, &olivia).await;
    take_over(&world, &otto, &world.owner, &key, 403).await;
    // Somebody who is in another organization too, seen from both.
    let (eve_id, eve) = world.user(&olivia, &home, "Eve", "member").await;
    let key = key_of(&world, &eve).await;
    let second = world.another_organization(&olivia, "Second").await;
    let inside = format!("/v3/organizations/{second}");
    let there = format!("{inside}/users/{eve_id}");
    world
        .put(&olivia, &format!("{there}/role"), json!({"role": "admin"}))
        .await
        .is(200);
    take_over(&world, &otto, &eve_id, &key, 403).await;
    let (_, sven) = world.user(&olivia, &second, "Sven", "owner").await;
    let password = json!({"password": "another good password"});
    world.put(&sven, &format!("{there}/password"), password).await.is(403);
    world
        .post(
            &sven,
            &format!("{there}/ssh_keys"),
            json!({"name": "mine", "key": ssh_key()}),
        )
        .await
        .is(403);
    world
        .patch(&sven, &there, json!({"email": "mine@example.org"}))
        .await
        .is(403);
    // Who is not there at all cannot be fetched, nor is it told whether there is such a user.
    let fetch = |user: &str| format!("{inside}/users/{user}/role");
    let (maria, _) = world.user(&olivia, &home, "Maria", "member").await;
    for user in [&*maria, "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e"] {
        world.put(&sven, &fetch(user), json!({"role": "member"})).await.is(404);
    }
    // Taken out of the second organization, he is again what he was, and what was shown of him there is not shown.
    let keys = format!("{there}/ssh_keys");
    assert_eq!(
        world.get(&sven, &keys).await.is(200).json().as_array().unwrap().len(),
        1
    );
    world.delete(&sven, &there).await.is(204);
    world.get(&sven, &keys).await.is(404);
    world.get(&eve, &inside).await.is(404);
    world
        .put(
            &otto,
            &format!("~/users/{eve_id}/password"),
            json!({"password": PASSWORD}),
        )
        .await
        .is(204);
}

async fn an_organization_keeps_an_owner(world: World) {
    let olivia = world.owner().await;
    let second = world.another_organization(&olivia, "Second").await;
    let inside = format!("/v3/organizations/{second}");
    let (otto_id, otto) = world.user(&olivia, &second, "Otto", "owner").await;
    world
        .delete(&olivia, &format!("{inside}/users/{}", world.owner))
        .await
        .is(204);
    let him = format!("{inside}/users/{otto_id}");
    world
        .put(&otto, &format!("{him}/role"), json!({"role": "admin"}))
        .await
        .is(409);
    world.delete(&otto, &him).await.is(409);
    // At home in the second, he is the only owner of the first too: he may not go.
    let (role, home) = (format!("~/users/{otto_id}/role"), world.organization.clone());
    world.put(&olivia, &role, json!({"role": "owner"})).await.is(200);
    world
        .put(
            &otto,
            &format!("~/users/{}/role", world.owner),
            json!({"role": "admin"}),
        )
        .await
        .is(200);
    let (_, paul) = world.user(&otto, &second, "Paul", "owner").await;
    let refused = world.delete(&otto, &him).await.is(409);
    assert!(refused.body.contains(&home), "{refused:?}");
    // His home may go, because he stays.
    world.delete(&paul, &inside).await.is(204);
    world.get(&otto, "~/users").await.is(200);
    world.get(&paul, "/v3/account").await.is(401);
    world.get(&olivia, "~/users").await.is(200);
}

async fn a_cluster_is_given_no_keys_of_those_who_only_read(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (id, rita) = world.user(&olivia, &home, "Rita", "read_only").await;
    key_of(&world, &rita).await;
    let cluster = world
        .post(&olivia, "~/clusters", json!({"name": "prod"}))
        .await
        .is(201)
        .field("api_key");
    let keys = async |token: &str| {
        let users = world.get(token, "~/users").await.is(200).json();
        let listed = users
            .as_array()
            .unwrap()
            .iter()
            .find(|user| user["id"] == *id)
            .unwrap()
            .clone();
        let item = world.get(token, &format!("~/users/{id}")).await.is(200).json();
        assert_eq!(item, listed);
        item["ssh_keys"].as_array().unwrap().len()
    };
    assert_eq!((keys(&cluster).await, keys(&olivia).await), (0, 1));
    world
        .put(&olivia, &format!("~/users/{id}/role"), json!({"role": "member"}))
        .await
        .is(200);
    assert_eq!(keys(&cluster).await, 1);
    world
        .put(&olivia, &format!("~/users/{id}/role"), json!({"role": "read_only"}))
        .await
        .is(200);
    assert_eq!(keys(&cluster).await, 0);
}

async fn who_is_deleted_is_gone_everywhere_at_once(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let second = world.another_organization(&olivia, "Second").await;
    let inside = format!("/v3/organizations/{second}");
    let (id, alice) = world.user(&olivia, &second, "Alice", "member").await;
    world
        .put(&olivia, &format!("~/users/{id}/role"), json!({"role": "admin"}))
        .await
        .is(200);
    let made = json!({"name": "long", "expires_in_seconds": 86400});
    let long = world
        .post(&alice, "/v3/account/tokens", made)
        .await
        .is(201)
        .field("token");
    let mut places = Vec::new();
    for base in [format!("/v3/organizations/{home}"), inside.clone()] {
        let team = json!({"name": "Shift", "description": "", "user_ids": [world.owner, id]});
        let team = world
            .post(&olivia, &format!("{base}/teams"), team)
            .await
            .is(201)
            .field("id");
        let role = world
            .post(&olivia, &format!("{base}/roles"), role("Reader"))
            .await
            .is(201)
            .field("id");
        let binding = json!({"type": "UserBinding", "user_id": id, "authorization_role_id": role});
        world
            .post(&olivia, &format!("{base}/role-bindings"), binding)
            .await
            .is(201);
        let cluster = world
            .post(&olivia, &format!("{base}/clusters"), json!({"name": "prod"}))
            .await
            .is(201);
        let kubernetes = format!("{base}/clusters/{}/token", cluster.field("id"));
        let kubernetes = world.post(&alice, &kubernetes, json!({})).await.is(200).field("token");
        world.get(&kubernetes, "/v3/authenticate").await.is(200);
        world.get(&kubernetes, "/v3/account").await.is(401);
        places.push((base, team, cluster.field("api_key"), kubernetes));
    }
    // Everything is remembered once.
    for (base, team, key, _) in &places {
        world.get(&olivia, &format!("{base}/teams/{team}")).await.is(200);
        assert!(
            world
                .get(key, &format!("{base}/users"))
                .await
                .is(200)
                .body
                .contains(&id)
        );
        assert!(
            world
                .get(key, &format!("{base}/role-bindings"))
                .await
                .is(200)
                .body
                .contains(&id)
        );
    }
    // In two places, he can only go by himself.
    world.delete(&olivia, &format!("{inside}/users/{id}")).await.is(403);
    world.delete(&alice, &format!("~/users/{id}")).await.is(204);
    world
        .put(&olivia, &format!("~/users/{id}/role"), json!({"role": "member"}))
        .await
        .is(200);
    world
        .put(&olivia, &format!("{inside}/users/{id}/role"), json!({"role": "admin"}))
        .await
        .is(200);
    world.delete(&alice, &format!("{inside}/users/{id}")).await.is(204);
    for token in [&alice, &long] {
        world.get(token, "/v3/account").await.is(401);
    }
    for (base, team, key, kubernetes) in &places {
        world.get(kubernetes, "/v3/authenticate").await.is(401);
        let team = world.get(&olivia, &format!("{base}/teams/{team}")).await.is(200).json();
        assert_eq!(team["user_ids"], json!([world.owner]));
        assert!(
            !world
                .get(key, &format!("{base}/users"))
                .await
                .is(200)
                .body
                .contains(&id)
        );
        assert_eq!(
            world.get(key, &format!("{base}/role-bindings")).await.is(200).body,
            "[]"
        );
    }
    world.log_in("alice@example.org", PASSWORD).await.is(401);
    // His address is free again.
    world.user(&olivia, &home, "Alice", "member").await;
}

async fn what_is_not_shown_is_shown_to_nobody_else(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    for (name, shown) in [
        ("owner", true),
        ("admin", true),
        ("cluster", true),
        ("member", false),
        ("read_only", false),
    ] {
        let token = fixture.token(name);
        for path in ["/registries", "/registries/{id}"] {
            let answer = world.get(token, &fixture.near(path)).await.is(200);
            assert_eq!(answer.body.contains("hunter2 registry"), shown, "{name} {answer:?}");
        }
        if name != "cluster" {
            for path in ["/providers", "/providers/{id}"] {
                let answer = world.get(token, &fixture.near(path)).await.is(200);
                assert!(
                    !answer.body.contains("credentials") && !answer.body.contains("hunter2"),
                    "{answer:?}"
                );
            }
        }
    }
}

async fn only_an_admin_of_a_cluster_terminates_it(world: World) {
    let olivia = world.owner().await;
    let elsewhere = world.another_organization(&olivia, "Elsewhere").await;
    let (id, alice) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let role = format!("/v3/organizations/{elsewhere}/users/{id}/role");
    world.put(&olivia, &role, json!({"role": "owner"})).await.is(200);
    let mut tokens = vec![
        ("a login", alice.clone(), false),
        ("an owner's login", olivia.clone(), false),
    ];
    for (name, organization, user, terminates) in [
        ("a member", &world.organization, &alice, false),
        ("an owner", &elsewhere, &alice, true),
        ("an owner of both", &world.organization, &olivia, true),
    ] {
        let clusters = format!("/v3/organizations/{organization}/clusters");
        let cluster = world.post(&olivia, &clusters, json!({"name": name})).await.is(201);
        tokens.push(("a key", cluster.field("api_key"), false));
        let token = format!("{clusters}/{}/token", cluster.field("id"));
        let token = world.post(user, &token, json!({})).await.is(200).field("token");
        tokens.push((name, token, terminates));
    }
    for (name, token, terminates) in tokens {
        let said = world.get(&token, "/v3/authenticate").await.is(200).json();
        let roles = if terminates { json!(["terminate"]) } else { json!([]) };
        assert_eq!(
            said["metadata"]["https://containership.io/roles"], roles,
            "{name}: {said}"
        );
    }
}
