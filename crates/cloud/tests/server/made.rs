//! The response to a creation equals that of a later GET, so that its creator can change the object at once.

use reqwest::Method;
use serde_json::json;
use tidewaiter_cloud::models::Kind;
use tidewaiter_cloud::server::http::endpoint::Output;
use tidewaiter_cloud::server::routes::ENDPOINTS;

use crate::access::body;
use crate::fixture::Fixture;
use crate::world::{World, on_both};

on_both!(the_etag_of_what_was_made_is_the_one_that_is_got_next);

async fn the_etag_of_what_was_made_is_the_one_that_is_got_next(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let (mut followed, mut without) = (0, 0);
    for endpoint in ENDPOINTS.iter() {
        if !matches!(endpoint.answers, Output::Made(_)) {
            continue;
        }
        let token = match &*endpoint.path {
            "/v3/organizations" => fixture.token("operator"),
            _ => owner,
        };
        // In the place of the one that the cluster has.
        if endpoint.path.ends_with("/plugins") {
            let other = fixture.near("/clusters/{cluster_id}/plugins/{id}");
            world.delete(owner, &other).await.is(204);
        }
        let mut made = body(endpoint, &fixture.near);
        // What is there already has these names.
        for field in ["name", "description"] {
            if made[field].is_string() {
                made[field] = json!("made");
            }
        }
        let made = world
            .post(token, &fixture.near.path(&endpoint.path), made)
            .await
            .is(201);
        let (path, etag) = (made.header("location"), made.header("etag"));
        let seen = world.get(token, &path).await;
        if seen.status == 405 || endpoint.is_shown_once {
            let conditional = path.contains("/account/ssh_keys");
            assert_eq!(etag.is_empty(), !conditional, "{path}");
            without += usize::from(!conditional);
        } else {
            assert_eq!(seen.is(200).header("etag"), etag, "{path}");
            let same = world.request(token, Method::PATCH, &path).header("if-match", &etag);
            world.send(same.json(&json!({}))).await.is(200);
            followed += 1;
        }
        // A key of one's own can be deleted under a condition.
        if !etag.is_empty() {
            let gone = world.request(token, Method::DELETE, &path).header("if-match", &etag);
            world.send(gone).await.is(204);
        }
    }
    assert_eq!((followed, without), (Kind::resources().count(), 5));
}
