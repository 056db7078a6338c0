//! Credentials: which tokens a login may make, what a token for a cluster tells, and that nothing keeps or repeats a
//! secret.

use jiff::SignedDuration;
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_kit::SystemClock;

use crate::fixture::registry;
use crate::token_quotas::claims;
use crate::world::{Answer, PASSWORD, World, on_both};

on_both!(
    only_a_login_makes_a_token_that_outlives_it_and_only_at_first,
    a_token_for_a_cluster_tells_of_its_organization_alone,
    a_secret_that_was_deleted_is_not_repeated,
    credentials_that_cannot_be_decrypted_are_replaced_or_deleted_with_their_object,
);

const TOKENS: &str = "/v3/account/tokens";

async fn make(world: &World, token: &str, seconds: u32) -> Answer {
    let body = json!({"name": "ci", "expires_in_seconds": seconds});
    world.post(token, TOKENS, body).await
}

async fn only_a_login_makes_a_token_that_outlives_it_and_only_at_first(world: World) {
    const MONTH: u32 = 30 * 86_400;
    let login = world.owner().await;
    let long = make(&world, &login, MONTH).await.is(201).field("token");
    // A token for a program makes none that outlives it, although it is new.
    let short = make(&world, &login, 3_600).await.is(201).field("token");
    make(&world, &short, 3_000).await.is(201);
    make(&world, &short, MONTH).await.is(403);
    make(&world, &long, 86_400).await.is(201);
    make(&world, &long, MONTH + 60).await.is(403);
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let age = SystemClock::shared().now() - SignedDuration::from_mins(11);
    let aged = sqlx::query("UPDATE objects SET created_at = $1 WHERE kind = 'tokens' AND id = $2")
        .bind(age.to_string())
        .bind(claims(&login)["jti"].as_str().unwrap());
    assert_eq!(aged.execute(&mut database).await.unwrap().rows_affected(), 1);
    let by_default = world
        .post(&login, "/v3/account/access_tokens", json!({"name": "old"}))
        .await;
    for refused in [make(&world, &login, MONTH).await, by_default] {
        let refused = refused.is(403);
        assert_eq!(refused.json()["field"], "expires_in_seconds");
        assert!(refused.body.contains("tidewaiter cloud login"), "{refused:?}");
    }
    make(&world, &login, 3_600).await.is(201);
    let again = world.owner().await;
    make(&world, &again, MONTH).await.is(201);
    // The list has no field that the description lacks.
    let listed = world.get(&again, TOKENS).await.is(200).json();
    for token in listed.as_array().unwrap() {
        assert_eq!(token["login"], Value::Null, "{token}");
    }
}

async fn a_token_for_a_cluster_tells_of_its_organization_alone(world: World) {
    let olivia = world.owner().await;
    let second = world.another_organization(&olivia, "Second").await;
    let (id, max) = world.user(&olivia, &second, "Max", "member").await;
    let role = json!({"role": "admin"});
    world.put(&olivia, &format!("~/users/{id}/role"), role).await.is(200);
    let inside = format!("/v3/organizations/{second}");
    let cluster = world
        .post(&olivia, &format!("{inside}/clusters"), json!({"name": "prod"}))
        .await
        .is(201);
    let path = format!("{inside}/clusters/{}", cluster.field("id"));
    let token = world.post(&max, &format!("{path}/token"), json!({})).await.is(200);
    let token = token.field("token");
    let told = async |token: &str| world.get(token, "/v3/authenticate").await.is(200).json();
    assert_eq!(told(&max).await["organizations"].as_array().unwrap().len(), 2);
    assert_eq!(
        told(&token).await["organizations"],
        json!([{"id": second, "role": "member"}])
    );
    // Not the role elsewhere, either.
    assert_eq!(
        told(&token).await["metadata"]["https://containership.io/roles"],
        json!([])
    );
    world.delete(&olivia, &path).await.is(204);
    assert_eq!(told(&token).await["organizations"], json!([]));
}

async fn a_secret_that_was_deleted_is_not_repeated(world: World) {
    let owner = world.owner().await;
    let post = async |path: &str, name: &str, body: Value| {
        let request = world.request(&owner, Method::POST, path);
        world.send(request.header("idempotency-key", name).json(&body)).await
    };
    let cluster = json!({"name": "prod"});
    let made = post("~/clusters", "cluster", cluster.clone()).await.is(201);
    let path = format!("~/clusters/{}", made.field("id"));
    let keys = world.get(&owner, &format!("{path}/api-keys")).await.is(200).json();
    let first = keys[0]["id"].as_str().unwrap().to_owned();
    let key = post(&format!("{path}/api-keys"), "key", json!({})).await.is(201);
    let spec = json!({"name": "ci", "expires_in_seconds": 3600});
    let token = post(TOKENS, "token", spec.clone()).await.is(201);
    for (place, name, body, answer, gone) in [
        (
            "~/clusters".to_owned(),
            "cluster",
            cluster,
            made.body,
            format!("{path}/api-keys/{first}"),
        ),
        (
            format!("{path}/api-keys"),
            "key",
            json!({}),
            key.body.clone(),
            format!("{path}/api-keys/{}", key.field("id")),
        ),
        (
            TOKENS.to_owned(),
            "token",
            spec,
            token.body.clone(),
            format!("{TOKENS}/{}", token.field("id")),
        ),
    ] {
        let replayed = post(&place, name, body.clone()).await.is(201);
        assert_eq!(replayed.header("idempotency-replayed"), "true");
        assert_eq!(replayed.body, answer);
        world.delete(&owner, &gone).await.is(204);
        let refused = post(&place, name, body).await.is(409);
        assert_eq!(refused.json()["field"], "Idempotency-Key");
        assert!(refused.body.contains("does not exist any more"), "{refused:?}");
    }
    world.get(&owner, &path).await.is(200);
}

#[tokio::test]
async fn no_cache_keeps_a_credential() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    let made = world.post(&owner, "~/registries", registry("one")).await.is(201);
    let cluster = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let (inside, key) = (format!("~/clusters/{}", cluster.field("id")), cluster.field("api_key"));
    let registries = world.get(&key, "~/registries").await.is(200);
    assert!(registries.body.contains("hunter2"));
    let known = world.request(&key, Method::GET, "~/registries");
    let unchanged = known.header("if-none-match", registries.header("etag"));
    let item = format!("~/registries/{}", made.field("id"));
    for answer in [
        world.log_in("olivia@example.org", PASSWORD).await.is(200),
        world.log_in("olivia@example.org", "wrong").await.is(401),
        world
            .post("", "/v3/login/api_key", json!({"api_key": key}))
            .await
            .is(200),
        world.send(unchanged).await.is(304),
        world.get(&owner, &item).await.is(200),
        world.patch(&owner, &item, json!({"description": "two"})).await.is(200),
        world
            .post(&owner, &format!("{inside}/api-keys"), json!({}))
            .await
            .is(201),
        world.post(&owner, &format!("{inside}/token"), json!({})).await.is(200),
        make(&world, &owner, 3_600).await.is(201),
        made,
        cluster,
        registries,
    ] {
        assert_eq!(answer.header("cache-control"), "no-store", "{answer:?}");
    }
    let keys = world.get("", "/.well-known/jwks.json").await.is(200);
    assert_eq!(keys.header("cache-control"), "");
}

async fn credentials_that_cannot_be_decrypted_are_replaced_or_deleted_with_their_object(world: World) {
    let owner = world.owner().await;
    let made = world.post(&owner, "~/registries", registry("ours")).await.is(201);
    let path = format!("~/registries/{}", made.field("id"));
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    for is_replaced in [true, false] {
        let damage = "UPDATE objects SET secret = 'AAAA' WHERE kind = 'registries'";
        let damaged = sqlx::query(damage).execute(&mut database).await.unwrap();
        assert_eq!(damaged.rows_affected(), 1);
        world.get(&owner, &path).await.is(500);
        if is_replaced {
            world.put(&owner, &path, registry("ours")).await.is(200);
            let listed = world.get(&owner, "~/registries").await.is(200).json();
            assert_eq!(listed[0]["credentials"], registry("ours")["credentials"]);
        } else {
            world.delete(&owner, &path).await.is(204);
            assert_eq!(world.get(&owner, "~/registries").await.is(200).json(), json!([]));
        }
    }
}
