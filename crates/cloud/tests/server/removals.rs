//! Removals of more objects than one commit deletes: what callers see.

use serde_json::json;
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_testkit::eventually;

use crate::stream::SOON;
use crate::world::{PASSWORD, World, on_both};

on_both!(
    a_key_is_revoked_with_its_tokens,
    tokens_are_revoked_before_they_are_deleted,
    an_organization_is_gone_before_it_is_deleted
);

/// Adds many objects of `kind` below `parent`, which are deleted before the others.
async fn older(database: &mut AnyConnection, organization: &str, kind: &str, parent: &str) {
    let inserted = "INSERT INTO objects (kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, updated_at, spec, status, secret) \
                    WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 5000) \
                    SELECT $3, '44444444-4444-4444-8444-' || substr(CAST(1000000000000 + i AS TEXT), 2), $1, '', $2, $2, 1, \
                    '2026-11-24T03:00:00Z', '2026-11-24T03:00:00Z', '{\"expires_at\":\"2999-01-01T00:00:00Z\",\"name\":\"old\"}', '', '' FROM n";
    let inserted = sqlx::query(inserted).bind(organization).bind(parent).bind(kind);
    inserted.execute(&mut *database).await.unwrap();
    let counted = "UPDATE counts SET count = count + 5000 WHERE organization_id = $1 AND kind = $2";
    sqlx::query(counted)
        .bind(organization)
        .bind(kind)
        .execute(database)
        .await
        .unwrap();
}

async fn number(database: &mut AnyConnection, statement: &'static str) -> i64 {
    sqlx::query_as::<_, (i64,)>(statement)
        .fetch_one(database)
        .await
        .unwrap()
        .0
}

async fn tokens_are_revoked_before_they_are_deleted(world: World) {
    let owner = world.owner().await;
    let (user, _) = world.user(&owner, &world.organization, "Max", "member").await;
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let token = async |token: &str, name: &str| {
        let made = json!({"name": name, "expires_in_seconds": 3600});
        world
            .post(token, "/v3/account/tokens", made)
            .await
            .is(201)
            .field("token")
    };
    // By a change of the password, which keeps one, and by an owner.
    for changes in [true, false] {
        older(&mut database, &world.organization, "tokens", &user).await;
        let login = world.log_in("max@example.org", PASSWORD).await.is(200).field("token");
        let other = token(&login, "other").await;
        // Both callers are known.
        for token in [&login, &other] {
            world.get(token, "/v3/account").await.is(200);
        }
        let kept = if changes {
            let change = json!({"old_password": PASSWORD, "new_password": format!("{PASSWORD} 2"), "end_tokens": true});
            world.put(&login, "/v3/account/password", change).await.is(204);
            let back = json!({"old_password": format!("{PASSWORD} 2"), "new_password": PASSWORD});
            world.get(&other, "/v3/account").await.is(401);
            let listed = world.get(&login, "/v3/account/tokens").await.is(200).json();
            assert_eq!(listed.as_array().unwrap().len(), 1);
            world.put(&login, "/v3/account/password", back).await.is(204);
            1
        } else {
            world.delete(&owner, &format!("~/users/{user}/tokens")).await.is(204);
            for token in [&login, &other] {
                world.get(token, "/v3/account").await.is(401);
            }
            0
        };
        eventually("the tokens to be deleted", SOON, async || {
            let left = "SELECT COUNT(*) FROM objects WHERE kind = 'tokens' AND spec LIKE '%old%'";
            let left = number(&mut database, left).await + number(&mut database, "SELECT COUNT(*) FROM removals").await;
            if left == 0 { Ok(()) } else { Err(left) }
        })
        .await;
        let own = "SELECT COUNT(*) FROM objects WHERE kind = 'tokens' AND parent_id IN (SELECT id FROM objects \
                   WHERE kind = 'users' AND spec LIKE '%max@%')";
        assert_eq!(number(&mut database, own).await, kept);
        let counted = "SELECT CAST(SUM(count) AS BIGINT) FROM counts WHERE kind = 'tokens'";
        let there = number(&mut database, "SELECT COUNT(*) FROM objects WHERE kind = 'tokens'").await;
        assert_eq!(number(&mut database, counted).await, there);
    }
    let recorded =
        "SELECT COUNT(*) FROM changes WHERE kind = 'tokens' AND action = 'delete' AND before LIKE '%\"old\"%'";
    assert_eq!(number(&mut database, recorded).await, 10_000);
}

async fn a_key_is_revoked_with_its_tokens(world: World) {
    let owner = world.owner().await;
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let path = format!("~/clusters/{}/api-keys", made.field("id"));
    let keys = world.get(&owner, &path).await.is(200).json();
    let id = keys[0]["id"].as_str().unwrap();
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    older(&mut database, &world.organization, "tokens", id).await;
    let key = json!({"api_key": made.field("api_key")});
    let login = world.post("", "/v3/login/api_key", key).await.is(200).field("token");
    world.get(&login, "~/users").await.is(200);
    world.delete(&owner, &format!("{path}/{id}")).await.is(204);
    world.get(&login, "~/users").await.is(401);
}

async fn an_organization_is_gone_before_it_is_deleted(world: World) {
    let owner = world.owner().await;
    let other = world.another_organization(&owner, "Other").await;
    let path = format!("/v3/organizations/{other}");
    let made = world
        .post(&owner, &format!("{path}/clusters"), json!({"name": "prod"}))
        .await
        .is(201);
    let key = made.field("api_key");
    let login = world
        .post("", "/v3/login/api_key", json!({"api_key": key}))
        .await
        .is(200)
        .field("token");
    let (_, token) = world.user(&owner, &other, "Max", "admin").await;
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    older(&mut database, &other, "clusters", &other).await;
    for caller in [&key, &login] {
        world.get(caller, &format!("{path}/users")).await.is(200);
    }
    world.get(&token, &format!("{path}/users")).await.is(200);
    world.delete(&owner, &path).await.is(204);
    for caller in [&key, &login, &token] {
        world.get(caller, &format!("{path}/users")).await.is(401);
    }
    world.get(&owner, &path).await.is(404);
    // The address can be used again at once.
    let again = json!({"name": "Max", "email": "max@example.org"});
    world.post(&owner, "~/users", again).await.is(201);
    eventually("all to be deleted", SOON, async || {
        let of_it = sqlx::query_as::<_, (i64,)>("SELECT COUNT(*) FROM objects WHERE organization_id = $1").bind(&other);
        let left = of_it.fetch_one(&mut database).await.unwrap().0
            + number(&mut database, "SELECT COUNT(*) FROM removals").await;
        if left == 0 { Ok(()) } else { Err(left) }
    })
    .await;
    let left = sqlx::query_as::<_, (i64,)>(
        "SELECT CAST(COALESCE(SUM(count), 0) AS BIGINT) FROM counts WHERE organization_id = $1",
    )
    .bind(&other);
    assert_eq!(left.fetch_one(&mut database).await.unwrap().0, 0);
    world.get(&token, "/v3/account").await.is(401);
}
