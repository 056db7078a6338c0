//! Recovery on the server's machine: when no operator is left, and while servers run.

use std::sync::Arc;

use serde_json::Value;
use sqlx::{AnyConnection, Connection as _, Executor as _};
use tidewaiter_cloud::server::keys::hash::Password;
use tidewaiter_cloud::server::{Error, RecoverOptions, RecoverSummary, recover};
use tidewaiter_kit::SystemClock;
use tidewaiter_testkit::eventually;
use uuid::Uuid;

use crate::stream::SOON;
use crate::world::{PASSWORD, World, on_both, sqlite_url};

on_both!(
    the_last_operator_comes_back,
    a_person_who_was_unknown_is_recovered,
    an_organization_without_an_owner_gets_one,
);

const NEW: &str = "another good password";

async fn recovered(world: &World, email: &str, organization: Option<&str>) -> Result<RecoverSummary, Error> {
    let person = RecoverOptions {
        email,
        organization: organization.map(|id| Uuid::try_parse(id).unwrap()),
        password: Password::new(NEW).unwrap(),
    };
    recover(&world.database, SystemClock::shared(), person).await
}

/// Changes the database of a server that was stopped, as no request could.
async fn execute(world: &World, statement: &'static str) {
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    database.execute(statement).await.unwrap();
    database.close().await.unwrap();
}

async fn served(world: &World) -> World {
    let (database, folder) = (world.database.clone(), Arc::clone(&world.folder));
    World::served(database, folder, world.ids(), |_| {}).await.unwrap()
}

async fn the_last_operator_comes_back(mut world: World) {
    let before = world.owner().await;
    world.stop().await;
    execute(&world, "DELETE FROM objects WHERE kind IN ('operators', 'passwords')").await;
    // The thief of a login has linked a provider.
    execute(
        &world,
        "INSERT INTO objects (kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, \
         updated_at, spec, status, secret) SELECT 'identities', id, organization_id, cluster_id, id, id, position, \
         created_at, updated_at, '{}', status, secret FROM objects WHERE kind = 'users'",
    )
    .await;
    // A lost key keeps nobody out.
    execute(
        &world,
        "INSERT INTO objects (kind, id, organization_id, cluster_id, parent_id, owner_id, position, created_at, \
         updated_at, spec, status, secret) SELECT 'security-keys', id, organization_id, cluster_id, id, id, position, \
         created_at, updated_at, '{}', status, secret FROM objects WHERE kind = 'users'",
    )
    .await;
    let summary = recovered(&world, "Olivia@Example.org", None).await.unwrap();
    assert_eq!(summary.user.to_string(), world.owner);
    assert!(!summary.is_new && summary.is_owner, "{summary:?}");
    let world = served(&world).await;
    world.get(&before, "/v3/account").await.is(401);
    world.log_in("olivia@example.org", PASSWORD).await.is(401);
    let token = world.log_in("olivia@example.org", NEW).await.is(200).field("token");
    world.get(&token, "/v3/operators").await.is(200);
    let linked = world.get(&token, "/v3/account/identities").await.is(200).json();
    assert_eq!(linked, serde_json::json!([]));
    let audit = world.get(&token, "~/audit").await.is(200).json();
    let is_recovery = |row: &&Value| row["action"] == "recover";
    let row = audit.as_array().unwrap().iter().find(is_recovery).unwrap();
    assert_eq!(
        (&row["object_id"], &row["actor"]),
        (&world.owner.clone().into(), &"system".into())
    );
    assert!(!row.to_string().contains(NEW), "{row}");
}

async fn a_person_who_was_unknown_is_recovered(mut world: World) {
    let olivia = world.owner().await;
    // With a single organization, too, nobody who mistypes an address makes an operator.
    world.stop().await;
    let unclear = recovered(&world, "oliva@example.org", None)
        .await
        .unwrap_err()
        .to_string();
    assert!(unclear.contains("there is no user oliva@example.org"), "{unclear}");
    let mut world = served(&world).await;
    let other = world.another_organization(&olivia, "Other").await;
    world.stop().await;
    let unclear = recovered(&world, "rescue@example.org", None)
        .await
        .unwrap_err()
        .to_string();
    for part in ["--organization", &other, &world.organization, "Acme"] {
        assert!(unclear.contains(part), "{unclear}");
    }
    let nowhere = Uuid::new_v4().to_string();
    let missing = recovered(&world, "rescue@example.org", Some(&nowhere))
        .await
        .unwrap_err();
    assert!(missing.to_string().contains("no such organization"), "{missing}");
    let summary = recovered(&world, "rescue@example.org", Some(&other)).await.unwrap();
    assert!(summary.is_new && !summary.is_owner, "{summary:?}");
    let world = served(&world).await;
    let token = world.log_in("rescue@example.org", NEW).await.is(200).field("token");
    world.get(&token, "/v3/operators").await.is(200);
    // The operator does not get into an organization that has an owner with more than to read.
    let users = format!("/v3/organizations/{other}/users");
    let listed = world.get(&token, &users).await.is(200).json();
    let own = listed
        .as_array()
        .unwrap()
        .iter()
        .find(|user| user["email"] == "rescue@example.org");
    assert_eq!(own.unwrap()["role"], "read_only");
    world.get(&token, "~/users").await.is(404);
    // The logins of others have not ended.
    world.get(&olivia, "/v3/account").await.is(200);
}

async fn an_organization_without_an_owner_gets_one(mut world: World) {
    let olivia = world.owner().await;
    let (alice, _) = world.user(&olivia, &world.organization, "Alice", "member").await;
    world.stop().await;
    execute(
        &world,
        "UPDATE objects SET spec = REPLACE(spec, '\"role\":\"owner\"', '\"role\":\"member\"') WHERE kind = 'memberships'",
    )
    .await;
    let organization = world.organization.clone();
    let summary = recovered(&world, "alice@example.org", Some(&organization))
        .await
        .unwrap();
    assert!(summary.is_owner && summary.user.to_string() == alice, "{summary:?}");
    let world = served(&world).await;
    let token = world.log_in("alice@example.org", NEW).await.is(200).field("token");
    let role = serde_json::json!({"role": "owner"});
    world
        .put(&token, &format!("~/users/{}/role", world.owner), role)
        .await
        .is(200);
}

#[tokio::test]
async fn servers_on_postgresql_follow_at_once() {
    let world = World::postgres().await;
    let before = world.owner().await;
    recovered(&world, "olivia@example.org", None).await.unwrap();
    eventually("the old login to be refused", SOON, async || {
        let status = world.get(&before, "/v3/account").await.status.as_u16();
        if status == 401 { Ok(()) } else { Err(status) }
    })
    .await;
    world.log_in("olivia@example.org", NEW).await.is(200);
}

#[tokio::test]
async fn a_database_that_a_server_uses_or_that_does_not_exist_is_not_touched() {
    let mut world = World::sqlite().await;
    let before = world.owner().await;
    let refused = recovered(&world, "olivia@example.org", None).await.unwrap_err();
    assert!(refused.to_string().contains("another process uses"), "{refused}");
    world.get(&before, "/v3/account").await.is(200);
    let missing = world.folder.path().join("missing.db");
    world.database = sqlite_url(&missing);
    let refused = recovered(&world, "olivia@example.org", None).await.unwrap_err();
    assert!(refused.to_string().contains("does not exist"), "{refused}");
    assert!(!missing.exists());
    world.database = "postgres://nobody@127.0.0.1:1/none".parse().unwrap();
    let refused = recovered(&world, "olivia@example.org", None).await.unwrap_err();
    assert!(refused.to_string().contains("the database is unusable"), "{refused}");
}
