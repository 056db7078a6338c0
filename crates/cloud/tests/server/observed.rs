//! The audit log has failed logins, reads of credentials and issued tokens, counted by the hour.

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_testkit::eventually;

use crate::fixture::{self, Fixture};
use crate::stream::{Listening, SOON, kinds};
use crate::world::{PASSWORD, World, on_both};

on_both!(
    failed_logins_are_counted,
    reads_of_credentials_and_issued_tokens_are_counted,
    invented_accounts_do_not_fill_the_audit_log,
);

/// The rows of `action` once `done` of them holds. Two of one subject if an hour has just begun.
async fn rows(world: &World, token: &str, path: &str, action: &str, done: impl Fn(&[Value]) -> bool) -> Vec<Value> {
    eventually(&format!("rows of {action}"), SOON, async || {
        let all = world.get(token, &format!("{path}?limit=1000")).await.is(200).json();
        let rows: Vec<Value> = all
            .as_array()
            .unwrap()
            .iter()
            .filter(|row| row["action"] == action)
            .cloned()
            .collect();
        if done(&rows) {
            Ok(rows)
        } else {
            Err(json!(rows).to_string())
        }
    })
    .await
}

fn count(rows: &[Value], of: impl Fn(&Value) -> bool) -> u64 {
    rows.iter()
        .filter(|row| of(row))
        .map(|row| row["after"]["count"].as_u64().unwrap())
        .sum()
}

async fn failed_logins_are_counted(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, operator) = (&fixture.world, fixture.token("owner"), fixture.token("operator"));
    let alice = fixture.near.of("user");
    for _ in 0..3 {
        world.log_in("alice@example.org", "wrong password").await.is(401);
        world
            .log_in("nobody@example.org", "hunter2 in the wrong field")
            .await
            .is(401);
    }
    // A wrong password of somebody who is logged in, and a key with the id of another.
    let token = world.log_in("alice@example.org", PASSWORD).await.is(200).field("token");
    let change = json!({"old_password": "wrong password", "new_password": "another password"});
    world.put(&token, "/v3/account/password", change).await.is(422);
    let key = fixture.near.of("key");
    let place = key.len() - 10;
    let letter = if key[place..].starts_with('a') { "b" } else { "a" };
    let mut wrong = key.to_owned();
    wrong.replace_range(place..=place, letter);
    world
        .post("", "/v3/login/api_key", json!({"api_key": wrong}))
        .await
        .is(401);
    let path = fixture.near("/audit");
    let near = rows(world, owner, &path, "failed-login", |rows| {
        count(rows, |row| row["object_id"] == alice) == 4 && count(rows, |row| row["kind"] == "api-keys") == 1
    })
    .await;
    assert!(near.len() <= 4, "{near:?}");
    for row in &near {
        assert_eq!((&row["actor"], &row["address"]), (&json!(""), &json!("127.0.0.1")));
        assert_eq!(row["request_id"].as_str().unwrap().len(), 36);
    }
    let of_key = near.iter().find(|row| row["kind"] == "api-keys").unwrap();
    assert_eq!(of_key["cluster_id"], fixture.near.of("cluster"));
    // What nobody has belongs to no organization, and what was typed is nowhere.
    let none = rows(world, operator, "/v3/audit", "failed-login", |rows| {
        count(rows, |_| true) == 3
    })
    .await;
    assert!(
        none.iter().all(|row| row["object_id"] == "" && row["kind"] == "users"),
        "{none:?}"
    );
    let all = format!("{near:?} {none:?}");
    assert!(
        !all.contains("hunter2") && !all.contains("nobody") && !all.contains("wrong"),
        "{all}"
    );
}

async fn reads_of_credentials_and_issued_tokens_are_counted(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let (owner, cluster) = (fixture.token("owner"), fixture.token("cluster"));
    let (registries, registry) = (fixture.near("/registries"), fixture.near.of("registries"));
    let inside = fixture.near("/clusters/{cluster_id}");
    let mut listening = Listening::to(world, cluster, &inside, None).await;
    listening.heard().await;
    for _ in 0..20 {
        world.get(cluster, &registries).await.is(200);
        world.get(owner, &format!("{registries}/{registry}")).await.is(200);
        world
            .post(fixture.token("read_only"), &format!("{inside}/token"), json!({}))
            .await
            .is(200);
    }
    // A page has none, and neither does the request that it sends for the registry.
    for page in ["/registries", "/registries/{id}"] {
        let page = fixture.near.path(&format!("/organizations/{{organization_id}}{page}"));
        let page = world.request("", Method::GET, &page);
        world
            .send(page.header("cookie", format!("__Host-session={owner}")))
            .await
            .is(200);
    }
    // A change that changes nothing shows them, too; a 304 does not, and neither does a list without credentials.
    world
        .patch(owner, &format!("{registries}/{registry}"), json!({}))
        .await
        .is(200);
    let etag = world
        .get(fixture.token("admin"), "/v3/account")
        .await
        .is(200)
        .header("etag");
    assert!(!etag.is_empty());
    let seen = world.get(cluster, &registries).await.is(200).header("etag");
    for _ in 0..5 {
        let again = world
            .request(cluster, Method::GET, &registries)
            .header("if-none-match", &seen);
        world.send(again).await.is(304);
    }
    world.get(fixture.token("member"), &registries).await.is(200);
    let script = fixture.near("/clusters/{cluster_id}/nodes/{id}/upgrade/kubernetes?version=1.30.1");
    world.get(cluster, &script).await.is(200);
    let path = fixture.near("/audit");
    let of = |who: String, object: String| move |row: &Value| row["actor"] == *who && row["object_id"] == *object;
    let by_cluster = of(format!("cluster:{}", fixture.near.of("cluster")), String::new());
    let read = rows(world, owner, &path, "read", |rows| {
        let one = count(rows, |row| row["object_id"] == registry && row["actor"] != "");
        let scripts = count(rows, |row| row["kind"] == "upgrade-scripts");
        (count(rows, &by_cluster), one, scripts) == (21, 21, 1)
    })
    .await;
    assert!(
        read.iter()
            .all(|row| row["kind"] != "registries" || row["before"].is_null())
    );
    assert!(read.len() <= 6, "{read:?}");
    let tokens = rows(world, owner, &path, "issue", |rows| {
        count(rows, |row| row["object_id"] == fixture.near.of("cluster")) >= 20
    })
    .await;
    assert!(
        tokens
            .iter()
            .all(|row| row["kind"] == "clusters" && row["address"] == "127.0.0.1"),
        "{tokens:?}"
    );
    // A stream does not take them for changes: the next one is the first that it hears of.
    world
        .post(owner, &fixture.near("/roles"), fixture::role("next"))
        .await
        .is(201);
    assert_eq!(kinds(&listening.heard().await), ["roles"]);
}

async fn invented_accounts_do_not_fill_the_audit_log(world: World) {
    let operator = world.owner().await;
    // By the header of a proxy that is trusted: each guess from another address.
    let trusted = vec!["127.0.0.0/8".parse().unwrap()];
    let world = world.restarted(|parts| parts.limits.proxies.0 = trusted).await;
    for number in 0..40 {
        let login = json!({"email": format!("nobody{number}@example.org"), "password": "wrong password"});
        let request = world.request("", Method::POST, "/v3/login/password").json(&login);
        let from = format!("for=198.51.100.{number}");
        world.send(request.header("forwarded", from)).await.is(401);
    }
    let rows = rows(&world, &operator, "/v3/audit", "failed-login", |rows| {
        count(rows, |_| true) == 40
    })
    .await;
    // 16 addresses, and one row of all others; twice if an hour has just begun.
    assert!((17..=34).contains(&rows.len()), "{rows:?}");
    let others = count(&rows, |row| row["address"] == "");
    assert!((6..=24).contains(&others), "{rows:?}");
}
