//! A database that goes silent: connections stay open, and nothing comes back on them.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use serde_json::json;
use tidewaiter_kit::clock::{Clock as _, SystemClock};
use tidewaiter_testkit::{Postgres, eventually};
use url::Url;

use crate::fixture;
use crate::proxy::Proxy;
use crate::world::World;

/// How soon writes must come back.
const BACK: Duration = Duration::from_secs(10);

#[tokio::test]
async fn writes_come_back_soon_after_the_database_went_silent() {
    let postgres = Postgres::shared().await;
    let database = postgres.create_database().await;
    let mut url: Url = postgres.url(&database).parse().unwrap();
    let proxy = Proxy::before(&mut url).await;
    let world = World::begun(url, Arc::new(tempfile::tempdir().unwrap())).await;
    let owner = world.owner().await;
    let write = async |name: &str| world.post(&owner, "~/registries", fixture::registry(name)).await;
    write("first").await.is(201);
    // All connections of the pool are in use, and writes are on the way.
    for turn in 0..3 {
        let reads = join_all((0..16).map(|_| world.get(&owner, "/v3/account/tokens")));
        let names: Vec<String> = (0..16).map(|number| format!("{turn}-{number}")).collect();
        let writes = join_all(names.iter().map(|name| write(name)));
        let silence = async { proxy.silence() };
        let began = SystemClock.monotonic();
        let (_, acknowledged, ()) = futures::join!(reads, writes, silence);
        eventually("a write", BACK, async || {
            let answer = write(&format!("after {turn}")).await;
            if [201, 409].contains(&answer.status.as_u16()) {
                Ok(())
            } else {
                Err(answer.body)
            }
        })
        .await;
        let took = SystemClock.monotonic().saturating_sub(began);
        assert!(took < BACK, "{took:?}");
        // What was acknowledged is there.
        let listed = eventually("a list", BACK, async || {
            let answer = world.get(&owner, "~/registries").await;
            if answer.status == 200 {
                Ok(answer.body)
            } else {
                Err(answer.body)
            }
        })
        .await;
        for (name, answer) in names.iter().zip(acknowledged) {
            assert!(
                answer.status != 201 || listed.contains(&format!("\"{name}\"")),
                "{name}"
            );
        }
        eventually("readiness", BACK, async || {
            let answer = world.get("", "/readyz").await;
            if answer.status == 200 { Ok(()) } else { Err(answer.body) }
        })
        .await;
    }
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    world.get(&made.field("api_key"), "~/users").await.is(200);
}
