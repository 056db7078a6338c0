//! Quotas, and what does not stay: expired tokens, old changes, and reports.

use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_cloud::models::Kind;
use tidewaiter_testkit::eventually;

use crate::errors::limited;
use crate::fixture::{self, Fixture};
use crate::stream::{Listening, SOON, kinds};
use crate::world::{World, on_both};

on_both!(
    expired_tokens_are_deleted_in_the_background,
    old_changes_are_deleted_except_those_that_streams_replay,
    reports_of_one_object_within_an_hour_are_one_change,
);

#[tokio::test]
async fn an_organization_has_as_many_objects_as_the_operator_permits() {
    let world = limited(|parts| parts.quotas = [(Kind::Registry, 3)].into()).await;
    let owner = world.owner().await;
    let registries = |organization: &str| format!("/v3/organizations/{organization}/registries");
    let other = world.another_organization(&owner, "Other").await;
    for organization in [&world.organization, &other] {
        let mut last = String::new();
        for number in 0..3 {
            let registry = fixture::registry(&number.to_string());
            last = world
                .post(&owner, &registries(organization), registry)
                .await
                .is(201)
                .field("id");
        }
        let refused = world
            .post(&owner, &registries(organization), fixture::registry("more"))
            .await
            .is(403);
        assert!(
            refused.body.contains("has 3 registries") && refused.body.contains("quotas.registries"),
            "{refused:?}"
        );
        world
            .delete(&owner, &format!("{}/{last}", registries(organization)))
            .await
            .is(204);
        world
            .post(&owner, &registries(organization), fixture::registry("more"))
            .await
            .is(201);
    }
    let metrics = world.get("", "/metrics").await.is(200).body;
    assert!(
        metrics.contains("tidewaiter_cloud_over_quota_total{kind=\"registries\"} 2"),
        "{metrics}"
    );
    // With a whole organization all that was counted goes.
    world
        .delete(&owner, &format!("/v3/organizations/{other}"))
        .await
        .is(204);
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let left: (i64,) = sqlx::query_as("SELECT COALESCE(SUM(count), 0) FROM counts WHERE organization_id = $1")
        .bind(&other)
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(left.0, 0);
}

async fn expired_tokens_are_deleted_in_the_background(world: World) {
    let owner = world.owner().await;
    for number in 0..5 {
        let token = json!({"name": format!("t{number}"), "expires_in_seconds": 3600});
        world.post(&owner, "/v3/account/tokens", token).await.is(201);
    }
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    // Where the expiry is in the document, or in which order its fields are, does not matter.
    let order = "UPDATE objects SET spec = '{\"a\":1,' || substr(spec, 2) WHERE kind = 'tokens'";
    sqlx::query(order).execute(&mut database).await.unwrap();
    let expire = "UPDATE names SET name = '19' || substr(name, 3) WHERE kind = 'tokens' AND id IN \
                  (SELECT id FROM objects WHERE kind = 'tokens' AND spec LIKE '%\"t%')";
    let expired = sqlx::query(expire).execute(&mut database).await.unwrap();
    assert_eq!(expired.rows_affected(), 5);
    // Nobody logs in.
    eventually("the expired tokens to be deleted", SOON, async || {
        let tokens = world.get(&owner, "/v3/account/tokens").await.is(200).json();
        let count = tokens.as_array().unwrap().len();
        if count == 1 { Ok(()) } else { Err(count) }
    })
    .await;
    let (count,): (i64,) = sqlx::query_as("SELECT CAST(SUM(count) AS BIGINT) FROM counts WHERE kind = 'tokens'")
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(count, 1);
    let (names,): (i64,) = sqlx::query_as("SELECT COUNT(*) FROM names WHERE kind = 'tokens'")
        .fetch_one(&mut database)
        .await
        .unwrap();
    assert_eq!(names, 1);
}

async fn old_changes_are_deleted_except_those_that_streams_replay(world: World) {
    let owner = world.owner().await;
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let path = format!("~/clusters/{}", made.field("id"));
    let before = Listening::to(&world, &owner, &path, None).await.heard().await.id;
    world.post(&owner, "~/roles", fixture::role("Old")).await.is(201);
    let rows = async || {
        world
            .get(&owner, "~/audit")
            .await
            .is(200)
            .json()
            .as_array()
            .unwrap()
            .len()
    };
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let old = "UPDATE changes SET at = '2001-01-01T00:00:00Z'";
    sqlx::query(old).execute(&mut database).await.unwrap();
    let report = json!({"status": {"type": "RUNNING"}});
    world
        .put(&made.field("api_key"), &format!("{path}/status"), report)
        .await
        .is(200);
    let after = world.get(&owner, "~/audit?limit=1").await.is(200).json()[0]["after"].clone();
    assert_eq!(after["status"]["type"], "RUNNING");
    assert_eq!(after["name"], serde_json::Value::Null, "only what was reported");
    let all = rows().await;
    assert!(all > 3);
    // As many more changes as streams replay, and one: two are no longer replayed.
    let moved = "UPDATE sequence SET value = 10002";
    sqlx::query(moved).execute(&mut database).await.unwrap();
    eventually("the first two changes to be deleted", SOON, async || {
        let (left,): (i64,) = sqlx::query_as("SELECT MIN(sequence) FROM changes")
            .fetch_one(&mut database)
            .await
            .unwrap();
        if left == 3 { Ok(()) } else { Err(left) }
    })
    .await;
    world.post(&owner, "~/roles", fixture::role("New")).await.is(201);
    let mut again = Listening::to(&world, &owner, &path, Some(&before)).await;
    assert!(kinds(&again.heard().await).contains(&"roles".to_owned()));
}

async fn reports_of_one_object_within_an_hour_are_one_change(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, cluster) = (&fixture.world, fixture.token("owner"), fixture.token("cluster"));
    let inside = fixture.near("/clusters/{cluster_id}");
    let path = fixture.near("/clusters/{cluster_id}/nodes/{id}/status");
    let (node, audit) = (fixture.near.of("nodes"), fixture.near("/audit?limit=1000"));
    let changes = async || {
        let rows = world.get(owner, &audit).await.is(200).json();
        let of_node = |row: &&Value| row["object_id"] == node && row["action"] == "update";
        rows.as_array()
            .unwrap()
            .iter()
            .filter(of_node)
            .cloned()
            .collect::<Vec<_>>()
    };
    let report = async |token: &str, path: &str, percent: u32| {
        let body = json!({"status": {"type": "UPDATING", "percent": percent}});
        world.put(token, path, body).await.is(200);
    };
    let mut listening = Listening::to(world, cluster, &inside, None).await;
    let begun = listening.heard().await.id;
    for percent in 0..40 {
        report(cluster, &path, percent).await;
    }
    let rows = changes().await;
    // Two if an hour has just begun.
    assert!((1..=2).contains(&rows.len()), "{rows:?}");
    assert_eq!(rows[0]["after"]["status"]["percent"], 39);
    assert_eq!(rows.last().unwrap()["before"], json!({"status": null}));
    // A stream that stopped before all of them learns of the kind.
    let mut again = Listening::to(world, cluster, &inside, Some(&begun)).await;
    assert!(kinds(&again.heard().await).contains(&"nodes".to_owned()));
    // What an admin says stays, and so does what was reported in another hour.
    for percent in 50..53 {
        report(owner, &path, percent).await;
    }
    let before = rows.len() + 3;
    assert_eq!(changes().await.len(), before);
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let earlier = "UPDATE changes SET at = '2001-01-01T00:00:00Z' WHERE object_id = $1";
    sqlx::query(earlier).bind(node).execute(&mut database).await.unwrap();
    report(cluster, &path, 60).await;
    assert_eq!(changes().await.len(), before + 1);
}

/// Returns the size of the file, without data that waits to be written into it.
async fn pages(world: &World) -> i64 {
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let (pages,): (i64,) = sqlx::query_as("PRAGMA page_count")
        .fetch_one(&mut database)
        .await
        .unwrap();
    pages
}

#[tokio::test]
async fn reports_do_not_make_the_database_grow() {
    let fixture = Fixture::new(World::sqlite().await).await;
    let (world, cluster) = (&fixture.world, fixture.token("cluster"));
    let path = fixture.near("/clusters/{cluster_id}/nodes/{id}/status");
    let report = async |number: u32| {
        let message = format!("{number} {}", "a".repeat(200));
        let body = json!({"status": {"type": "UPDATING", "message": message, "percent": number % 100}});
        world.put(cluster, &path, body).await.is(200);
    };
    for number in 0..50 {
        report(number).await;
    }
    let before = pages(world).await;
    for number in 50..800 {
        report(number).await;
    }
    // Another hour may have begun: then there is another row. 750 rows would be 100 pages at least.
    let after = pages(world).await;
    assert!(after <= before + 4, "{before} pages, then {after}");
}
