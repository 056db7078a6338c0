//! A database that goes silent: connections stay open, and nothing comes back on them.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use reqwest::StatusCode;
use serde_json::json;
use tidewaiter_kit::clock::{Clock as _, SystemClock};
use tidewaiter_testkit::{Postgres, eventually};
use url::Url;
use uuid::Uuid;

use crate::fixture;
use crate::proxy::Proxy;
use crate::stream::{Listening, SOON, kinds};
use crate::world::{PASSWORD, World};

/// The time within which writes must come back on a busy machine: before a request is given up.
const BACK: Duration = Duration::from_secs(25);
/// The time within which a notification arrives on a busy machine, and below the interval at which changes are polled.
const QUICK: Duration = Duration::from_secs(4);

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

/// Only the connection on which a replica is notified goes silent. Changes are polled every five seconds, so a replica
/// that is never notified again sees each of several changes in a row that late.
#[tokio::test]
async fn changes_of_another_replica_are_heard_soon_after_the_notifications_went_silent() {
    let postgres = Postgres::shared().await;
    let database = postgres.create_database().await;
    let url: Url = postgres.url(&database).parse().unwrap();
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let first = World::begun(url.clone(), Arc::clone(&folder)).await;
    let mut through = url;
    let proxy = Proxy::before(&mut through).await;
    let second = World::served(through, folder, first.ids(), |_| {}).await.unwrap();
    let owner = first.owner().await;
    let made = first.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let path = format!("~/clusters/{}", made.field("id"));
    let mut stream = Listening::to(&second, &owner, &path, None).await;
    stream.heard().await;
    let heard = async |stream: &mut Listening, name: &str| {
        first
            .post(&owner, "~/registries", fixture::registry(name))
            .await
            .is(201);
        let began = SystemClock.monotonic();
        while !kinds(&stream.heard().await).contains(&"registries".to_owned()) {}
        SystemClock.monotonic().saturating_sub(began)
    };
    heard(&mut stream, "before").await;
    proxy.silence_listening();
    let mut took = Vec::new();
    for number in 0..16 {
        took.push(heard(&mut stream, &format!("after {number}")).await);
        if took.iter().rev().take_while(|took| **took < QUICK).count() == 3 {
            return;
        }
    }
    panic!("{took:?}");
}

/// While the database is away, and each look at it takes seconds, invented API keys of one address do not take all
/// permits to look up callers.
#[tokio::test]
async fn invented_keys_of_one_address_leave_permits_to_others() {
    let postgres = Postgres::start().await;
    let url = postgres.url(&postgres.create_database().await).parse().unwrap();
    let world = World::begun(url, Arc::new(tempfile::tempdir().unwrap())).await;
    world.owner().await;
    postgres.stop().await;
    let elsewhere = reqwest::Client::builder().local_address(IpAddr::from([127, 0, 0, 2]));
    let elsewhere = elsewhere.build().unwrap();
    let invented = join_all((0..100_u32).map(|number| {
        let key = format!("twk_{}_{}", Uuid::from_u128(number.into()).simple(), "A".repeat(43));
        let request = elsewhere.get(format!("{}/v3/account", world.base)).bearer_auth(key);
        async move { request.send().await.unwrap().status() }
    }));
    let honest = async {
        // Of those that came first, the ones without a permit are refused when they have waited for a second.
        eventually("a refusal", SOON, async || {
            let metrics = world.get("", "/metrics").await.is(200).body;
            let refused = ["429", "503"].map(|status| format!("path=\"/v3/account\",status=\"{status}\""));
            if refused.iter().any(|refused| metrics.contains(refused)) {
                Ok(())
            } else {
                Err("there is none")
            }
        })
        .await;
        world.log_in("olivia@example.org", PASSWORD).await
    };
    let (invented, answer) = futures::join!(invented, honest);
    assert!(invented.contains(&StatusCode::TOO_MANY_REQUESTS), "{invented:?}");
    assert!(!answer.body.contains("overloaded"), "{answer:?}");
}
