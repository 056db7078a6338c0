//! Operators make and unmake each other, one always stays, and nobody who is none gets the power of one.

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_cloud::models::Kind;
use tidewaiter_testkit::eventually;

use crate::escalation::{key_of, take_over};
use crate::stream::SOON;
use crate::world::{Answer, World, on_both};

on_both!(
    operators_make_and_unmake_each_other,
    an_operator_sees_what_each_organization_has_of_its_limits,
    the_last_operator_stays,
    nobody_takes_an_operator_over,
);

const ORGANIZATIONS: &str = "/v3/operators/organizations";

fn operator(user: &str) -> String {
    format!("/v3/operators/{user}")
}

async fn add(world: &World, token: &str, user: &str) -> Answer {
    world.send(world.request(token, Method::PUT, &operator(user))).await
}

async fn make_organization(world: &World, token: &str) -> Answer {
    world.post(token, "/v3/organizations", json!({"name": "Another"})).await
}

async fn operators(world: &World, token: &str) -> Vec<Value> {
    let listed = world.get(token, "/v3/operators").await.is(200);
    serde_json::from_str(&listed.body).unwrap()
}

async fn operators_make_and_unmake_each_other(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (otto_id, otto) = world.user(&olivia, &home, "Otto", "owner").await;
    // He is known, and not as an operator.
    for refused in [
        make_organization(&world, &otto).await,
        add(&world, &otto, &otto_id).await,
        world.delete(&otto, &operator(&world.owner)).await,
        world.get(&otto, "/v3/operators").await,
    ] {
        refused.is(403);
    }
    let made = add(&world, &olivia, &otto_id).await.is(200);
    assert_eq!(made.field("email"), "otto@example.org");
    let again = add(&world, &olivia, &otto_id).await.is(200);
    assert_eq!(made.json(), again.json());
    make_organization(&world, &otto).await.is(201);
    let all = operators(&world, &otto).await;
    assert_eq!((all.len(), &all[1]), (2, &made.json()));
    assert_eq!(all[0]["id"], world.owner);
    let added: i64 = made.field("added_at").parse().unwrap();
    assert!(added > 1_700_000_000_000, "in milliseconds: {added}");
    // At home it is told who made him one.
    let audit = world.get(&olivia, "~/audit").await.is(200).json();
    let rows: Vec<_> = audit.as_array().unwrap().iter().collect();
    let of_otto = |row: &&&Value| row["kind"] == "operators" && row["object_id"] == *otto_id;
    let of_otto: Vec<_> = rows.iter().filter(of_otto).collect();
    assert_eq!(of_otto.len(), 1);
    assert_eq!(of_otto[0]["actor"], format!("user:{}", world.owner));
    // Who is not there, and who could never log in.
    let nobody = add(&world, &otto, "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e").await.is(404);
    assert_eq!(nobody.json()["field"], "user_id");
    let mute = json!({"name": "Mute", "email": "mute@example.org"});
    let mute = world.post(&olivia, "~/users", mute).await.is(201).field("id");
    let refused = add(&world, &otto, &mute).await.is(409);
    assert_eq!(refused.json()["field"], "user_id");
    let refused = world.delete(&otto, &operator(&mute)).await.is(404);
    assert_eq!(refused.json()["field"], "user_id");
    // And what is taken away is away with the next request.
    world.delete(&otto, &operator(&world.owner)).await.is(204);
    make_organization(&world, &olivia).await.is(403);
    world.get(&olivia, "/v3/operators").await.is(403);
    assert_eq!(operators(&world, &otto).await, [made.json()]);
}

async fn an_operator_sees_what_each_organization_has_of_its_limits(world: World) {
    let world = world
        .restarted(|parts| parts.quotas = [(Kind::Cluster, 2)].into())
        .await;
    let olivia = world.owner().await;
    let (_, otto) = world.user(&olivia, &world.organization, "Otto", "owner").await;
    let other = world.another_organization(&olivia, "Other").await;
    let (_, sven) = world.user(&olivia, &other, "Sven", "owner").await;
    let leave = format!("/v3/organizations/{other}/users/{}", world.owner);
    world.delete(&olivia, &leave).await.is(204);
    let clusters = format!("/v3/organizations/{other}/clusters");
    for name in ["prod", "test"] {
        world.post(&sven, &clusters, json!({ "name": name })).await.is(201);
    }
    world.post(&sven, &clusters, json!({"name": "more"})).await.is(403);
    // Page by page, in the order of their creation.
    let first = world.get(&olivia, &format!("{ORGANIZATIONS}?limit=1")).await.is(200);
    assert_eq!(first.json().as_array().unwrap().len(), 1);
    assert_eq!(first.json()[0]["name"], "Acme");
    let link = first.header("link");
    let next = link.trim_start_matches('<').split('>').next().unwrap();
    let second = world.get(&olivia, next).await.is(200);
    assert_eq!(second.header("link"), "");
    let listed = second.json();
    assert_eq!((&listed[0]["id"], &listed[0]["name"]), (&json!(other), &json!("Other")));
    let objects = listed[0]["objects"].as_array().unwrap();
    let of_kind = |kind: &str| objects.iter().find(|used| used["kind"] == kind);
    assert_eq!(of_kind("clusters").unwrap()["count"], 2);
    assert_eq!(of_kind("clusters").unwrap()["limit"], 2);
    assert_eq!(of_kind("memberships").unwrap()["count"], 1);
    assert_eq!(of_kind("tokens"), None);
    let bytes = listed[0]["bytes"].as_u64().unwrap();
    assert!(
        bytes > 0 && listed[0]["bytes_limit"].as_u64().unwrap() > bytes,
        "{listed}"
    );
    // Nothing that is inside it, which the operator may not read otherwise either.
    assert!(
        !second.body.contains("prod") && !second.body.contains("sven"),
        "{second:?}"
    );
    world.get(&olivia, &clusters).await.is(404);
    for token in [&otto, &sven] {
        world.get(token, ORGANIZATIONS).await.is(403);
    }
}

async fn the_last_operator_stays(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (otto_id, _) = world.user(&olivia, &home, "Otto", "owner").await;
    let last = async |method: Method, path: &str| {
        let refused = world.send(world.request(&olivia, method, path)).await.is(409);
        assert!(
            refused.body.contains("make another user an operator first"),
            "{refused:?}"
        );
    };
    let herself = format!("~/users/{}", world.owner);
    last(Method::DELETE, &operator(&world.owner)).await;
    last(Method::DELETE, &herself).await;
    // Nor does one go, or several at once, with the only organization.
    let with_home = async || {
        let refused = world.delete(&olivia, "~").await.is(409);
        assert!(refused.body.contains("member of no other organization"), "{refused:?}");
    };
    with_home().await;
    add(&world, &olivia, &otto_id).await.is(200);
    with_home().await;
    assert_eq!(operators(&world, &olivia).await.len(), 2);
    let second = make_organization(&world, &olivia).await.is(201).field("id");
    let (sven_id, sven) = world.user(&olivia, &second, "Sven", "owner").await;
    add(&world, &olivia, &sven_id).await.is(200);
    // Olivia is in the second one too, and Otto is not.
    with_home().await;
    world.delete(&olivia, &operator(&otto_id)).await.is(204);
    world.delete(&olivia, "~").await.is(204);
    world.get(&olivia, "/v3/account").await.is(200);
    let left = operators(&world, &sven).await;
    let ids: Vec<_> = left.iter().map(|operator| &operator["id"]).collect();
    assert_eq!(ids, [&json!(world.owner), &json!(sven_id)]);
}

async fn nobody_takes_an_operator_over(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (_, otto) = world.user(&olivia, &home, "Otto", "owner").await;
    let (max_id, max) = world.user(&olivia, &home, "Max", "member").await;
    let key = key_of(&world, &max).await;
    add(&world, &olivia, &max_id).await.is(200);
    // Not even another operator could then act as him.
    for token in [&otto, &olivia] {
        take_over(&world, token, &max_id, &key, 403).await;
    }
    let refused = world.delete(&otto, "~").await.is(403);
    assert!(refused.body.contains("operator"), "{refused:?}");
    world.get(&max, "/v3/operators").await.is(200);
    world.delete(&olivia, &operator(&max_id)).await.is(204);
    let password = json!({"password": "another good password"});
    let path = format!("~/users/{max_id}/password");
    world.put(&otto, &path, password).await.is(204);
    world.get(&max, "/v3/account").await.is(401);
}

#[tokio::test]
async fn who_is_made_or_unmade_on_one_server_is_so_on_the_other() {
    let one = World::postgres().await;
    let other = one.replica().await;
    let olivia = one.owner().await;
    let (id, otto) = one.user(&olivia, &one.organization, "Otto", "member").await;
    let hears = async |status: u16| {
        eventually("the other server to hear of it", SOON, async || {
            let found = other.get(&otto, "/v3/operators").await.status;
            if found == status { Ok(()) } else { Err(found) }
        })
        .await;
    };
    hears(403).await;
    add(&one, &olivia, &id).await.is(200);
    hears(200).await;
    one.delete(&olivia, &operator(&id)).await.is(204);
    hears(403).await;
}
