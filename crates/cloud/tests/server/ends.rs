//! Access that ends: at its second and not before; nobody prolongs their own, and no owner is lost by it.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tidewaiter_cloud::server::keys::codes::s256;
use tidewaiter_kit::{Clock as _, SystemClock};
use tidewaiter_testkit::eventually;

use crate::fixture::{role, ssh_key};
use crate::stream::SOON;
use crate::world::{PASSWORD, World, on_both};

on_both!(
    a_user_is_refused_from_the_end_on_and_not_before,
    an_end_in_the_past_is_refused_and_one_that_has_passed_is_shown,
    nobody_prolongs_their_own_access,
    the_access_of_owners_and_operators_does_not_end,
    an_admin_of_the_home_ends_the_access_of_a_member_of_two_organizations,
);

/// The end that is this number of seconds from now.
pub fn end_in(seconds: i64) -> Timestamp {
    let end = SystemClock.now() + SignedDuration::from_secs(seconds);
    Timestamp::from_second(end.as_second()).unwrap()
}

async fn a_user_is_refused_from_the_end_on_and_not_before(world: World) {
    let olivia = world.owner().await;
    let cluster = world
        .post(&olivia, "~/clusters", json!({"name": "prod"}))
        .await
        .is(201)
        .field("id");
    let (alice, login) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let path = format!("~/users/{alice}");
    let end = end_in(10);
    let changed = world
        .patch(&olivia, &path, json!({"expires_at": end.to_string()}))
        .await;
    assert_eq!(changed.is(200).field("expires_at"), end.to_string());
    let redirect = "http://127.0.0.1:4711/";
    let grant = json!({"name": "laptop", "redirect_uri": redirect, "code_challenge": s256("verifier")});
    let granted = world
        .post(&login, "/v3/account/login-grants", grant)
        .await
        .is(200)
        .field("code");
    // The kube-apiserver does not ask the cloud: its token ends with the user.
    let token = world
        .post(&login, &format!("~/clusters/{cluster}/token"), json!({}))
        .await;
    assert_eq!(token.is(200).field("expires_at"), end.to_string());
    eventually("the token is refused", SOON, async || {
        let sent = SystemClock.now();
        match world.get(&login, "/v3/account").await.status.as_u16() {
            401 => {
                assert!(SystemClock.now() >= end, "refused before {end}");
                Ok(())
            }
            status => {
                assert!(sent < end, "{status} after {end}");
                Err(status)
            }
        }
    })
    .await;
    let code = json!({"code": granted, "code_verifier": "verifier", "redirect_uri": redirect});
    for refused in [
        world.get(&login, "/v3/account").await,
        world.log_in("alice@example.org", PASSWORD).await,
        world.post("", "/v3/login/browser", code).await,
    ] {
        let refused = refused.is(401);
        assert!(
            refused.body.contains(&format!("your access ended at {end}")),
            "{refused:?}"
        );
    }
    let wrong = world.log_in("alice@example.org", "not this one at all").await.is(401);
    assert!(!wrong.body.contains("ended"), "{wrong:?}");
    // Still there, for people to see and to prolong.
    assert_eq!(
        world.get(&olivia, &path).await.is(200).field("expires_at"),
        end.to_string()
    );
    world.patch(&olivia, &path, json!({"expires_at": null})).await.is(200);
    world.get(&login, "/v3/account").await.is(200);
}

async fn an_end_in_the_past_is_refused_and_one_that_has_passed_is_shown(world: World) {
    let olivia = world.owner().await;
    let reader = world.post(&olivia, "~/roles", role("Reader")).await.is(201).field("id");
    let keys = format!("~/users/{}/ssh_keys", world.owner);
    let user = json!({"name": "Alice", "email": "alice@example.org"});
    let key = json!({"name": "laptop", "key": ssh_key()});
    let binding = json!({"type": "UserBinding", "user_id": world.owner, "authorization_role_id": reader});
    for (list, body) in [("~/users", user), (&*keys, key.clone()), ("~/role-bindings", binding)] {
        let mut past = body;
        past["expires_at"] = json!("2020-01-01T00:00:00Z");
        let refused = world.post(&olivia, list, past).await.is(422);
        assert_eq!(refused.json()["field"], "expires_at", "{refused:?}");
        for part in ["is 2020-01-01T00:00:00Z", "set a later time", "delete the object"] {
            assert!(refused.body.contains(part), "{refused:?}");
        }
    }
    let end = end_in(5);
    let mut body = key;
    body["expires_at"] = json!(end.to_string());
    let made = world.post(&olivia, &keys, body).await.is(201);
    let path = format!("{keys}/{}", made.field("id"));
    eventually("the end has passed", SOON, async || {
        let now = SystemClock.now();
        if now >= end { Ok(()) } else { Err(now) }
    })
    .await;
    let renamed = world.patch(&olivia, &path, json!({"name": "old laptop"})).await.is(200);
    assert_eq!(renamed.field("expires_at"), end.to_string());
    let listed = world.get(&olivia, &keys).await.is(200).json();
    assert_eq!(listed[0]["expires_at"], end.to_string());
}

async fn nobody_prolongs_their_own_access(world: World) {
    let olivia = world.owner().await;
    let (adam, login) = world.user(&olivia, &world.organization, "Adam", "admin").await;
    let path = format!("~/users/{adam}");
    let end = end_in(3_600).to_string();
    world.patch(&olivia, &path, json!({"expires_at": end})).await.is(200);
    for later in [json!(null), json!(end_in(7_200).to_string())] {
        let later = json!({"expires_at": later});
        world.patch(&login, &path, later.clone()).await.is(403);
        world.patch(&login, "/v3/account", later).await.is(422);
    }
    let account = json!({"name": "Adam", "email": "adam@example.org"});
    let account = world.put(&login, "/v3/account", account).await.is(200);
    assert_eq!(account.field("expires_at"), end);
}

async fn the_access_of_owners_and_operators_does_not_end(world: World) {
    let olivia = world.owner().await;
    let end = json!({"expires_at": end_in(3_600).to_string()});
    let (otto, _) = world.user(&olivia, &world.organization, "Otto", "owner").await;
    let refused = world
        .patch(&olivia, &format!("~/users/{otto}"), end.clone())
        .await
        .is(422);
    assert_eq!(refused.json()["field"], "expires_at", "{refused:?}");
    let (max, _) = world.user(&olivia, &world.organization, "Max", "member").await;
    let path = format!("~/users/{max}");
    world.patch(&olivia, &path, end.clone()).await.is(200);
    let owner = json!({"role": "owner"});
    world.put(&olivia, &format!("{path}/role"), owner.clone()).await.is(409);
    world
        .put(&olivia, &format!("/v3/operators/{max}"), json!({}))
        .await
        .is(409);
    let mut body = json!({"name": "Olga", "email": "olga@example.org", "role": "owner"});
    body["expires_at"] = end["expires_at"].clone();
    world.post(&olivia, "~/users", body).await.is(409);
    world.patch(&olivia, &path, json!({"expires_at": null})).await.is(200);
    world.put(&olivia, &format!("{path}/role"), owner).await.is(200);
}

async fn an_admin_of_the_home_ends_the_access_of_a_member_of_two_organizations(world: World) {
    let olivia = world.owner().await;
    let other = json!({"name": "Other"});
    let other = world
        .post(&olivia, "/v3/organizations", other)
        .await
        .is(201)
        .field("id");
    let (_, adam) = world.user(&olivia, &world.organization, "Adam", "admin").await;
    let (max, _) = world.user(&olivia, &world.organization, "Max", "member").await;
    let elsewhere = format!("/v3/organizations/{other}/users/{max}");
    let role = async |role: &str| {
        let path = format!("{elsewhere}/role");
        world.put(&olivia, &path, json!({ "role": role })).await.is(200);
    };
    role("member").await;
    let path = format!("~/users/{max}");
    let (end, none) = (
        json!({"expires_at": end_in(3_600).to_string()}),
        json!({"expires_at": null}),
    );
    world.patch(&adam, &path, end.clone()).await.is(200);
    world.patch(&olivia, &elsewhere, none.clone()).await.is(403);
    let more = json!({"expires_at": null, "email": "adam2@example.org"});
    world.patch(&adam, &path, more).await.is(403);
    world.patch(&adam, &path, none).await.is(200);
    role("owner").await;
    world.patch(&adam, &path, end.clone()).await.is(422);
    role("member").await;
    let operator = format!("/v3/operators/{max}");
    world.put(&olivia, &operator, json!({})).await.is(200);
    world.patch(&adam, &path, end).await.is(403);
}
