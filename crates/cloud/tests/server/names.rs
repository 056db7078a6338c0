//! Long names: unique on both databases, also when one is moved to the other.

use std::sync::Arc;

use reqwest::Method;
use tidewaiter_cloud::server::store;
use tidewaiter_testkit::Postgres;

use crate::fixture;
use crate::world::{World, on_both};

on_both!(the_longest_name_is_there_once);

fn longest() -> String {
    "界".repeat(1_024)
}

async fn the_longest_name_is_there_once(world: World) {
    let owner = world.owner().await;
    let made = world
        .post(&owner, "~/registries", fixture::registry(&longest()))
        .await
        .is(201);
    let again = world
        .post(&owner, "~/registries", fixture::registry(&longest()))
        .await
        .is(409);
    assert!(again.body.contains("description"), "{again:?}");
    world
        .delete(&owner, &format!("~/registries/{}", made.field("id")))
        .await
        .is(204);
    world
        .post(&owner, "~/registries", fixture::registry(&longest()))
        .await
        .is(201);
}

#[tokio::test]
async fn long_names_move_from_sqlite_to_postgres() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    world
        .post(&owner, "~/registries", fixture::registry(&longest()))
        .await
        .is(201);
    // As an earlier version stored it.
    let name = format!("{{\"description\":\"{}\"}}", longest());
    let file = world.folder.path().join("cloud.db");
    let url = format!("sqlite://{}", file.display());
    let pool = sqlx::SqlitePool::connect(&url).await.unwrap();
    let changed = sqlx::query("UPDATE names SET name = $1 WHERE kind = 'registries'")
        .bind(&name)
        .execute(&pool);
    assert_eq!(changed.await.unwrap().rows_affected(), 1);
    pool.close().await;
    let mut copy = Vec::new();
    store::backup(&world.database, &mut copy, &mut |_| {}).await.unwrap();
    assert!(String::from_utf8_lossy(&copy).contains(&longest()));
    let postgres = Postgres::shared().await;
    let database = postgres.create_database().await;
    let database = postgres.url(&database).parse().unwrap();
    store::restore(&database, &mut &*copy, &mut |_| {}).await.unwrap();
    let moved = World::served(database, Arc::clone(&world.folder), world.ids(), |_| {})
        .await
        .unwrap();
    let request = moved.request(&owner, Method::GET, "~/registries");
    assert!(moved.send(request).await.is(200).body.contains(&longest()));
}
