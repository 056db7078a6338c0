//! From which cursors a stream goes on, and which are told to look at everything.

use std::sync::Arc;

use sqlx::{AnyConnection, Connection as _};

use crate::fixture;
use crate::stream::{Listening, cluster, kinds, label};
use crate::world::{World, on_both};

on_both!(
    who_was_away_hears_what_he_missed,
    who_was_away_for_very_long_looks_at_everything,
);

async fn who_was_away_hears_what_he_missed(world: World) {
    let owner = world.owner().await;
    let (path, key) = cluster(&world, &owner, "prod").await;
    let mut listening = Listening::to(&world, &key, &path, None).await;
    let first = listening.heard().await.id;
    label(&world, &owner, &path, "a").await;
    let second = listening.heard().await.id;
    drop(listening);
    world
        .post(&owner, "~/registries", fixture::registry("ours"))
        .await
        .is(201);
    label(&world, &owner, &path, "b").await;
    for after in [&first, &second] {
        let mut again = Listening::to(&world, &key, &path, Some(after)).await;
        let event = again.heard().await;
        assert_eq!(kinds(&event), ["labels", "registries"]);
        // And from there nothing twice.
        let mut on = Listening::to(&world, &key, &path, Some(&event.id)).await;
        label(&world, &owner, &path, if after == &first { "c" } else { "d" }).await;
        for stream in [&mut again, &mut on] {
            assert_eq!(kinds(&stream.heard().await), ["labels"]);
        }
    }
    let (epoch, _) = first.rsplit_once('-').unwrap();
    let elsewhere = format!("{}-1", "0".repeat(epoch.len()));
    for (turn, unknown) in [
        &*elsewhere,
        &format!("{epoch}-999999"),
        &format!("{epoch}--1"),
        "nonsense",
        "-",
        &format!("{epoch}-x"),
    ]
    .into_iter()
    .enumerate()
    {
        let mut lost = Listening::to(&world, &key, &path, Some(unknown)).await;
        let reset = lost.heard().await;
        assert_eq!((&*reset.event, &*reset.data), ("reset", "{}"), "{unknown}");
        label(&world, &owner, &path, &format!("r-{turn}")).await;
        assert_eq!(kinds(&lost.heard().await), ["labels"]);
    }
}

/// The number in a cursor.
fn number(cursor: &str) -> i64 {
    cursor.rsplit_once('-').unwrap().1.parse().unwrap()
}

/// After a restart, thousands of streams resume at once.
#[tokio::test]
async fn a_stream_resumes_without_reading_the_changes() {
    let world = World::postgres().await;
    let owner = world.owner().await;
    let (path, key) = cluster(&world, &owner, "prod").await;
    let first = Listening::to(&world, &key, &path, None).await.heard().await.id;
    label(&world, &owner, &path, "a").await;
    let world = world.restarted(|_| {}).await;
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let mut locked = database.begin().await.unwrap();
    let lock = "LOCK TABLE changes IN ACCESS EXCLUSIVE MODE";
    sqlx::query(lock).execute(&mut *locked).await.unwrap();
    let mut resumed = Listening::to(&world, &key, &path, Some(&first)).await;
    assert_eq!(kinds(&resumed.heard().await), ["labels"]);
    locked.rollback().await.unwrap();
}

async fn who_was_away_for_very_long_looks_at_everything(mut world: World) {
    let owner = world.owner().await;
    let (path, key) = cluster(&world, &owner, "prod").await;
    let first = Listening::to(&world, &key, &path, None).await.heard().await.id;
    label(&world, &owner, &path, "a").await;
    world.stop().await;
    // As if ten thousand changes had been made since, of other clusters.
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let latest = number(&first) + 10_000;
    let set = sqlx::query("UPDATE sequence SET value = $1").bind(latest);
    set.execute(&mut database).await.unwrap();
    database.close().await.unwrap();
    let again = World::served(world.database.clone(), Arc::clone(&world.folder), world.ids(), |_| {});
    let mut world = again.await.unwrap();
    let mut listening = Listening::to(&world, &key, &path, Some(&first)).await;
    let heard = listening.heard().await;
    assert_eq!(kinds(&heard), ["labels"]);
    // What others changed since is behind him too.
    assert_eq!(number(&heard.id), latest);
    label(&world, &owner, &path, "b").await;
    assert_eq!(kinds(&listening.heard().await), ["labels"]);
    // A process knows each change since it started; a restart replays the last ten thousand changes only.
    let mut late = Listening::to(&world, &key, &path, Some(&first)).await;
    assert_eq!(kinds(&late.heard().await), ["labels"]);
    world.stop().await;
    let again = World::served(world.database.clone(), Arc::clone(&world.folder), world.ids(), |_| {});
    let world = again.await.unwrap();
    let mut late = Listening::to(&world, &key, &path, Some(&first)).await;
    let reset = late.heard().await;
    assert_eq!((&*reset.event, &*reset.data), ("reset", "{}"));
    assert_eq!(number(&reset.id), latest + 1);
    label(&world, &owner, &path, "c").await;
    assert_eq!(kinds(&late.heard().await), ["labels"]);
}
