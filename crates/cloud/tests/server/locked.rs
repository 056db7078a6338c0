//! A locked organization answers, and changes nothing.

use reqwest::Method;
use serde_json::json;
use tidewaiter_cloud::server::http::endpoint::Input;
use tidewaiter_cloud::server::routes::ENDPOINTS;

use crate::fixture::{Fixture, example, role, ssh_key};
use crate::world::{World, on_both};

on_both!(in_a_locked_organization_nothing_changes);

async fn in_a_locked_organization_nothing_changes(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, operator) = (&fixture.world, fixture.token("owner"), fixture.token("operator"));
    let lock = async |locked: bool| {
        let answer = world
            .put(operator, &fixture.near("/locked"), json!({ "locked": locked }))
            .await
            .is(200);
        assert_eq!(answer.json()["locked"], locked);
    };
    lock(true).await;
    let before = world.changes(owner, &fixture.near("/audit?limit=1000")).await;
    let mut place = fixture.near.clone();
    place.set("api-keys", uuid::Uuid::new_v4());
    let mut tried = 0;
    let changes = ENDPOINTS
        .iter()
        .filter(|endpoint| endpoint.method != Method::GET && endpoint.path.contains("{organization_id}"));
    for endpoint in changes.filter(|endpoint| !endpoint.path.ends_with("/locked") && !endpoint.path.ends_with("/token"))
    {
        let bodies: &[&str] = match endpoint.takes {
            Input::Nothing => &[""],
            Input::Text => &[crate::fixture::SCRIPT],
            // Each fits one kind, and the others refuse it before they look who is locked.
            _ => &[
                r#"{"name": "another", "email": "another@example.org"}"#,
                r#"{"name": "another"}"#,
                r#"{"key": "cluster.containership.io/another", "value": ""}"#,
                r#"{"key": "nodepool.containership.io/another", "value": ""}"#,
                r#"{"role": "member"}"#,
                r#"{"name": "another", "expires_in_seconds": 3600}"#,
                r#"{"role": "member", "email": "another@example.org"}"#,
                r#"{"kind": "ClusterLabel", "revision": "0123456789ab"}"#,
                r#"{"plugin": "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e", "digest": "abc"}"#,
                r#"{"password": "another good password"}"#,
                r#"{"status": {"type": "RUNNING"}}"#,
                r#"{"status": {"clusterStatus": "Success", "nodeStatuses": {}}}"#,
                "{}",
            ],
        };
        let described = endpoint.kind.filter(|kind| kind.code().is_some());
        let example = described.map(|kind| example(kind).to_string());
        let mut refused = 0;
        for body in bodies.iter().copied().chain(example.as_deref()) {
            let request = world.request(owner, endpoint.method.clone(), &place.path(&endpoint.path));
            let answer = world.send(request.body(body.to_owned())).await;
            assert!(
                [403, 422].contains(&answer.status.as_u16()),
                "{} {} {body}: {answer:?}",
                endpoint.method,
                endpoint.path
            );
            refused += usize::from(answer.status == 403);
        }
        assert!(refused > 0, "{} {}", endpoint.method, endpoint.path);
        tried += refused;
    }
    assert!(tried > 60, "{tried}");
    world
        .post(owner, &fixture.near("/roles"), role("Another"))
        .await
        .is(403);
    for token in [owner, fixture.token("member")] {
        let key = json!({"name": "own", "key": ssh_key()});
        world.post(token, "/v3/account/ssh_keys", key).await.is(403);
        world
            .patch(token, "/v3/account", json!({"name": "Another"}))
            .await
            .is(403);
    }
    world
        .put(
            fixture.token("cluster"),
            &fixture.near("/clusters/{cluster_id}/status"),
            json!({"status": {"type": "RUNNING"}}),
        )
        .await
        .is(403);
    assert_eq!(world.changes(owner, &fixture.near("/audit?limit=1000")).await, before);
    lock(false).await;
    world
        .post(owner, &fixture.near("/roles"), role("Another"))
        .await
        .is(201);
}
