//! The one form of error responses, and limits.

use std::num::NonZeroU32;

use futures::future::join_all;
use reqwest::Method;
use serde_json::json;
use tidewaiter_cloud::server::ServerParts;
use tidewaiter_testkit::eventually;

use crate::fixture::{role, ssh_key};
use crate::stream::SOON;
use crate::world::{Answer, World};

pub async fn limited(change: impl FnOnce(&mut ServerParts)) -> World {
    World::sqlite().await.restarted(change).await
}

fn assert_refused(answer: &Answer, status: u16) {
    assert_eq!(answer.status.as_u16(), status, "{answer:?}");
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("x-request-id").len(), 36);
    let body = answer.json();
    assert_eq!(body["code"], status);
    assert!(!body["message"].as_str().unwrap().is_empty());
}

#[tokio::test]
async fn a_refusal_says_why_in_one_form() {
    let world = World::sqlite().await;
    let owner = world.owner().await;
    let raw = async |method: Method, path: &str, kind: &str, body: String| {
        let request = world.request(&owner, method, path).header("content-type", kind);
        world.send(request.body(body)).await
    };
    let json = "application/json";
    for bad in ["", "{", "{\"name\": \"a\"} x", "\u{feff}{}"] {
        assert_refused(&raw(Method::POST, "~/roles", json, bad.to_owned()).await, 400);
    }
    for bad in ["[]", "7", "null", "\"text\"", "{\"name\": \"a\", \"name\": \"b\"}"] {
        let answer = raw(Method::POST, "~/roles", json, bad.to_owned()).await;
        assert!([400, 422].contains(&answer.status.as_u16()), "{answer:?}");
    }
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/jsonx"] {
        assert_refused(&raw(Method::POST, "~/roles", kind, role("a").to_string()).await, 415);
    }
    raw(
        Method::POST,
        "~/roles",
        "Application/JSON; charset=utf-8",
        role("a").to_string(),
    )
    .await
    .is(201);
    let large = format!("{{\"name\": \"{}\"}}", "a".repeat(1024 * 1024));
    assert_refused(&raw(Method::POST, "~/roles", json, large).await, 413);
    let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
    let answer = raw(Method::POST, "~/roles", json, deep).await;
    assert!([400, 422].contains(&answer.status.as_u16()), "{:?}", answer.status);
    for path in [
        "/v3/nothing",
        "/v2/organizations",
        "~/roles/",
        "/v3/organizations/..%2f",
    ] {
        assert_refused(&world.get(&owner, path).await, 404);
    }
    let not_so = raw(Method::DELETE, "~/roles", json, String::new()).await;
    assert_refused(&not_so, 405);
    assert!(
        not_so.header("allow").contains("GET") && not_so.header("allow").contains("POST"),
        "{not_so:?}"
    );
    for field in ["template_id", "configuration"] {
        let answer = world
            .post(&owner, "~/clusters", json!({"name": "new", field: {}}))
            .await;
        assert_refused(&answer, 501);
        assert_eq!(answer.json()["field"], field);
    }
    let unknown = world.get("", "~/roles").await;
    assert_refused(&unknown, 401);
    assert_eq!(unknown.header("www-authenticate"), "Bearer");
    // The request id of the caller is beside ours, if it is plain text.
    for (number, (id, kept)) in [
        ("a.b-c_9", true),
        (&"x".repeat(128), true),
        (&*"x".repeat(129), false),
        ("a b", false),
        ("a\"b", false),
    ]
    .into_iter()
    .enumerate()
    {
        let answer = world
            .send(
                world
                    .request(&owner, Method::POST, "~/roles")
                    .header("x-request-id", id)
                    .json(&role(&format!("role {number}"))),
            )
            .await;
        let own = answer.is(201).header("x-request-id");
        assert_eq!(own.len(), 36, "{own}");
        let row = world.get(&owner, "~/audit?limit=1").await.is(200).json()[0].clone();
        assert_eq!(row["request_id"], own);
        assert_eq!(row["client_request_id"], if kept { id } else { "" });
        assert_eq!(row["address"], "127.0.0.1");
    }
}

#[tokio::test]
async fn who_asks_too_often_is_told_when_to_come_again() {
    let world = limited(|parts| parts.limits.requests_a_second = NonZeroU32::MIN).await;
    let owner = world.owner().await;
    world.get(&owner, "/v3/account").await.is(200);
    // All at once: one after the other, a busy machine takes longer than a second for each.
    let answers = join_all((0..30).map(|_| world.get(&owner, "/v3/account"))).await;
    let refused = answers.iter().find(|answer| answer.status != 200).expect("no limit");
    assert_refused(refused, 429);
    assert!(refused.header("retry-after").parse::<u64>().unwrap() >= 1);
    // Others are not concerned.
    let made = World::sqlite().await;
    let owner = made.owner().await;
    let guessed = eventually("the right password to be refused", SOON, async || {
        // All at once, and again: another guess is permitted every six seconds.
        join_all((0..20).map(|_| made.log_in("olivia@example.org", "a wrong password"))).await;
        let answer = made.log_in("Olivia@Example.org", crate::world::PASSWORD).await;
        if answer.status == 200 {
            Err("it was not")
        } else {
            Ok(answer)
        }
    })
    .await;
    assert_refused(&guessed, 429);
    assert!(guessed.header("retry-after").parse::<u64>().unwrap() >= 1);
    made.get(&owner, "/v3/account").await.is(200);
    made.log_in("somebody@example.org", "a wrong password").await.is(401);
}

#[tokio::test]
async fn a_server_that_has_too_much_to_do_says_so() {
    let world = limited(|parts| parts.limits.requests_at_once = 0).await;
    let answer = world.log_in("olivia@example.org", "a wrong password").await;
    assert_refused(&answer, 503);
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
    world.get("", "/healthz").await.is(200);
}

#[tokio::test]
async fn requests_that_come_at_once_wait_for_each_other() {
    let world = limited(|parts| parts.limits.requests_at_once = 1).await;
    let owner = world.owner().await;
    // Each waits for some seconds, which a busy machine may take for one: once in three times, none is refused.
    for attempt in 0.. {
        let answers = join_all((0..8).map(|_| world.get(&owner, "/v3/account"))).await;
        if answers.iter().all(|answer| answer.status == 200) {
            break;
        }
        assert!(attempt < 2, "{answers:?}");
    }
}

#[tokio::test]
async fn one_who_is_not_known_is_told_in_the_same_words_as_one_who_is() {
    let world = World::sqlite().await;
    let one = world.log_in("olivia@example.org", "a wrong password").await.is(401);
    let other = world.log_in("nobody@example.org", "a wrong password").await.is(401);
    assert_eq!(one.body, other.body);
    let owner = world.owner().await;
    world
        .post(&owner, "/v3/account/ssh_keys", json!({"name": "own", "key": ssh_key()}))
        .await
        .is(201);
}
