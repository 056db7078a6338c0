//! The number of tokens of a user and of a cluster's key: nobody takes those of others.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::SignedDuration;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::SystemClock;

use crate::world::{PASSWORD, World, on_both};

on_both!(
    a_user_fills_only_the_own_tokens,
    logging_in_as_a_cluster_stores_one_token,
);

/// The payload of a token.
pub fn claims(token: &str) -> Value {
    let payload = token.split('.').nth(1).unwrap();
    serde_json::from_slice(&URL_SAFE_NO_PAD.decode(payload).unwrap()).unwrap()
}

async fn a_user_fills_only_the_own_tokens(world: World) {
    let world = world.restarted(|parts| parts.quotas = [(Kind::Token, 3)].into()).await;
    let owner = world.owner().await;
    let (id, login) = world.user(&owner, &world.organization, "Max", "member").await;
    let create = async |token: &str, name: &str| {
        let body = json!({"name": name, "expires_in_seconds": 30 * 86_400});
        world.post(token, "/v3/account/tokens", body).await
    };
    let made = create(&login, "one").await.is(201).field("token");
    create(&login, "two").await.is(201);
    let refused = create(&login, "three").await.is(403);
    assert!(
        refused.body.contains("you have 3 tokens") && refused.body.contains("quotas.tokens"),
        "{refused:?}"
    );
    let metrics = world.get("", "/metrics").await.is(200).body;
    assert!(
        metrics.contains("tidewaiter_cloud_over_quota_total{kind=\"tokens\"} 1"),
        "{metrics}"
    );
    // The user still logs in, and the login that expires first ends; a token for a program does not.
    let email = world.get(&login, "/v3/account").await.is(200).field("email");
    let again = world.log_in(&email, PASSWORD).await.is(200).field("token");
    world.get(&login, "/v3/account").await.is(401);
    world.get(&made, "/v3/account").await.is(200);
    let listed = world.get(&again, "/v3/account/tokens").await.is(200).json();
    assert_eq!(listed.as_array().unwrap().len(), 3);
    // Others have their own.
    let other = world.owner().await;
    create(&other, "ci").await.is(201);
    // What has expired does not count, before it is deleted.
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let expire = "UPDATE names SET name = '19' || substr(name, 3) WHERE kind = 'tokens' AND scope_id = $1 AND id <> $2";
    let current = claims(&again)["jti"].as_str().unwrap().to_owned();
    let expired = sqlx::query(expire).bind(&id).bind(&current).execute(&mut database);
    assert_eq!(expired.await.unwrap().rows_affected(), 2);
    create(&again, "three").await.is(201);
    create(&again, "four").await.is(201);
    create(&again, "five").await.is(403);
}

async fn logging_in_as_a_cluster_stores_one_token(world: World) {
    let owner = world.owner().await;
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let (path, key) = (format!("~/clusters/{}", made.field("id")), made.field("api_key"));
    let log_in = async || {
        let token = world.post("", "/v3/login/api_key", json!({"api_key": key})).await;
        token.is(200).field("token")
    };
    let first = log_in().await;
    let changes = async || world.get(&owner, "~/audit?limit=1000").await.is(200).body;
    let before = changes().await;
    for _ in 0..5 {
        let token = log_in().await;
        assert_eq!(claims(&token)["jti"], claims(&first)["jti"]);
        assert_eq!(claims(&token)["exp"], claims(&first)["exp"]);
        world.get(&token, &path).await.is(200);
    }
    assert_eq!(changes().await, before, "nothing was stored");
    // A token that soon expires is followed by a new one, which is then the one of the key.
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let soon = SystemClock::shared().now() + SignedDuration::from_mins(29);
    let age = "UPDATE names SET name = $1 || substr(name, 20) WHERE kind = 'tokens' AND id = $2";
    let aged = sqlx::query(age)
        .bind(soon.strftime("%Y-%m-%dT%H:%M:%S").to_string())
        .bind(claims(&first)["jti"].as_str().unwrap());
    assert_eq!(aged.execute(&mut database).await.unwrap().rows_affected(), 1);
    let second = log_in().await;
    assert_ne!(claims(&second)["jti"], claims(&first)["jti"]);
    let third = log_in().await;
    assert_eq!(claims(&third)["jti"], claims(&second)["jti"]);
    for token in [&first, &second, &third] {
        world.get(token, &path).await.is(200);
    }
    // The key goes, and its tokens with it.
    let keys = world.get(&owner, &format!("{path}/api-keys")).await.is(200).json();
    let its = format!("{path}/api-keys/{}", keys[0]["id"].as_str().unwrap());
    world.delete(&owner, &its).await.is(204);
    for token in [&first, &second, &third] {
        world.get(token, &path).await.is(401);
    }
}
