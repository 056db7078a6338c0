//! Memberships that end: of an organization and of a team, at their second and not before.

use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use serde_json::{Value, json};
use tidewaiter_kit::{Clock as _, SystemClock};
use tidewaiter_testkit::eventually;

use crate::ends::end_in;
use crate::fixture::ssh_key;
use crate::stream::{Listening, SOON};
use crate::token_quotas::claims;
use crate::world::{World, on_both};

on_both!(
    a_membership_counts_for_nothing_from_its_end_on_and_not_before,
    a_team_gives_nothing_from_the_end_of_a_membership_on,
    an_old_client_prolongs_no_membership_of_a_team,
    an_organization_keeps_an_owner_who_does_not_end,
    nobody_prolongs_their_own_membership,
);

/// Waits until `token` is refused at `path` with `wanted`, which must not be before `end`.
async fn refused_from(world: &World, token: &str, path: &str, wanted: StatusCode, end: Timestamp) {
    eventually("the end of the membership", SOON, async || {
        let sent = SystemClock.now();
        let status = world.get(token, path).await.status;
        if status == wanted {
            assert!(SystemClock.now() >= end, "refused before {end}");
            return Ok(());
        }
        assert!(sent < end, "{status} after {end}");
        Err(status)
    })
    .await;
}

async fn a_membership_counts_for_nothing_from_its_end_on_and_not_before(world: World) {
    let olivia = world.owner().await;
    let cluster = world.post(&olivia, "~/clusters", json!({"name": "prod"})).await.is(201);
    let (key, cluster) = (cluster.field("api_key"), format!("~/clusters/{}", cluster.field("id")));
    let (alice, login) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let added = json!({"name": "laptop", "key": ssh_key()});
    world.post(&login, "/v3/account/ssh_keys", added).await.is(201);
    let second = world.another_organization(&olivia, "Second").await;
    let elsewhere = format!("/v3/organizations/{second}");
    let member = json!({"role": "member"});
    let role = format!("{elsewhere}/users/{alice}/role");
    world.put(&olivia, &role, member).await.is(200);

    let (path, end) = (format!("~/users/{alice}"), end_in(10));
    let until = json!({"role": "member", "expires_at": end.to_string()});
    let set = world.put(&olivia, &format!("{path}/role"), until).await.is(200);
    assert_eq!(set.field("expires_at"), end.to_string());
    let shown = world.get(&olivia, &path).await.is(200).json();
    assert_eq!(shown["role_expires_at"], end.to_string(), "{shown}");
    assert_eq!((&shown["expires_at"], &shown["home"]), (&Value::Null, &json!(true)));
    // The cluster enforces the earlier one of both ends, without the cloud.
    let of_cluster = async || {
        let users = world.get(&key, &format!("{cluster}/ssh-users")).await.is(200).json();
        let mut users = users.as_array().unwrap().clone();
        users.retain(|user| user["id"] == *alice);
        users.remove(0)["expires_at"].clone()
    };
    assert_eq!(of_cluster().await, end.to_string());
    let earlier = end - SignedDuration::from_secs(1);
    let early = json!({"expires_at": earlier.to_string()});
    world.patch(&olivia, &path, early).await.is(200);
    assert_eq!(of_cluster().await, earlier.to_string());
    world.patch(&olivia, &path, json!({"expires_at": null})).await.is(200);
    let token = world.post(&login, &format!("{cluster}/token"), json!({})).await;
    assert_eq!(token.is(200).field("expires_at"), end.to_string());

    let mut listening = Listening::to(&world, &login, &cluster, None).await;
    let ((), ended) = tokio::join!(refused_from(&world, &login, "~", StatusCode::NOT_FOUND, end), async {
        while listening.next().await.is_some() {}
        SystemClock.now()
    });
    // Nothing else wakes the stream.
    let late = end + SignedDuration::from_secs(30);
    assert!(ended >= end && ended < late, "the stream ended at {ended}");
    world.post(&login, &format!("{cluster}/token"), json!({})).await.is(404);
    let own = world.get(&login, "/v3/organizations").await.is(200).json();
    assert_eq!(own.as_array().unwrap().len(), 1, "{own}");
    world.get(&login, &elsewhere).await.is(200);
    // Still there, for people to see and to prolong.
    let prolonged = json!({"role": "member", "expires_at": null});
    let shown = world.get(&olivia, &path).await.is(200);
    assert_eq!(shown.field("role_expires_at"), end.to_string());
    world.put(&olivia, &format!("{path}/role"), prolonged).await.is(200);
    world.get(&login, "~").await.is(200);
}

async fn a_team_gives_nothing_from_the_end_of_a_membership_on(world: World) {
    let olivia = world.owner().await;
    let cluster = world.post(&olivia, "~/clusters", json!({"name": "prod"})).await.is(201);
    let token = format!("~/clusters/{}/token", cluster.field("id"));
    let (alice, login) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let end = end_in(8);
    let past = json!({"name": "Past", "user_ids": [alice], "user_ends": {&alice: "2020-01-01T00:00:00Z"}});
    let refused = world.post(&olivia, "~/teams", past).await.is(422);
    assert_eq!(refused.json()["field"], format!("user_ends.{alice}"), "{refused:?}");
    let strange = json!({"name": "Strange", "user_ids": [], "user_ends": {&alice: end.to_string()}});
    let refused = world.post(&olivia, "~/teams", strange).await.is(422);
    assert!(refused.body.contains("not in user_ids"), "{refused:?}");
    let team = json!({"name": "Shift", "user_ids": [alice, world.owner], "user_ends": {&alice: end.to_string()}});
    let team = world.post(&olivia, "~/teams", team).await.is(201).field("id");
    let lasting = json!({"name": "Lasting", "user_ids": [alice]});
    let lasting = world.post(&olivia, "~/teams", lasting).await.is(201).field("id");

    eventually("the end of the membership", SOON, async || {
        let sent = SystemClock.now();
        let answer = world.post(&login, &token, json!({})).await.is(200);
        let claims = claims(&answer.field("token")).to_string();
        assert!(claims.contains(&lasting), "{claims}");
        if claims.contains(&team) {
            assert!(sent < end, "{claims} after {end}");
            // The kube-apiserver does not ask the cloud: the token ends with the membership that it names.
            assert_eq!(answer.field("expires_at"), end.to_string());
            return Err(claims);
        }
        assert!(SystemClock.now() >= end, "{claims} before {end}");
        let expires: Timestamp = answer.field("expires_at").parse().unwrap();
        assert!(expires > end, "{expires}");
        Ok(())
    })
    .await;
    // That of another user of the team does not end.
    let answer = world.post(&olivia, &token, json!({})).await.is(200);
    assert!(claims(&answer.field("token")).to_string().contains(&team));
}

async fn an_old_client_prolongs_no_membership_of_a_team(world: World) {
    let olivia = world.owner().await;
    let (alice, _) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let (bob, _) = world.user(&olivia, &world.organization, "Bob", "member").await;
    let end = end_in(3_600).to_string();
    let team = json!({"name": "Shift", "user_ids": [alice, bob], "user_ends": {&alice: end, &bob: end}});
    let made = world.post(&olivia, "~/teams", team).await.is(201);
    let path = format!("~/teams/{}", made.field("id"));
    let both = json!({&alice: end, &bob: end});
    let renamed = json!({"name": "Night shift", "user_ids": [alice.to_uppercase(), bob]});
    for changed in [
        world.put(&olivia, &path, renamed).await,
        world.patch(&olivia, &path, json!({"description": "late"})).await,
    ] {
        assert_eq!(changed.is(200).json()["user_ends"], both);
    }
    let less = world.patch(&olivia, &path, json!({"user_ids": [alice]})).await.is(200);
    assert_eq!(less.json()["user_ends"], json!({&alice: end}));
    let added = world
        .patch(&olivia, &path, json!({"user_ids": [alice, bob]}))
        .await
        .is(200);
    assert_eq!(added.json()["user_ends"], json!({&alice: end}));
    let none = world
        .patch(&olivia, &path, json!({"user_ends": {&alice: null}}))
        .await
        .is(200);
    assert_eq!(none.json()["user_ends"], Value::Null);
    // A user who leaves the organization leaves no end behind.
    world
        .patch(&olivia, &path, json!({"user_ends": {&bob: end}}))
        .await
        .is(200);
    world.delete(&olivia, &format!("~/users/{bob}")).await.is(204);
    let left = world.get(&olivia, &path).await.is(200);
    assert!(!left.body.contains(&bob), "{left:?}");
    world
        .put(&olivia, &path, json!({"name": "Night shift", "user_ids": [alice]}))
        .await
        .is(200);
}

async fn an_organization_keeps_an_owner_who_does_not_end(world: World) {
    let olivia = world.owner().await;
    let until = json!({"role": "owner", "expires_at": end_in(3_600).to_string()});
    let role = |user: &str| format!("~/users/{user}/role");
    let (otto, login) = world.user(&olivia, &world.organization, "Otto", "owner").await;
    let (_, anna) = world.user(&olivia, &world.organization, "Anna", "admin").await;
    world.put(&anna, &role(&otto), until.clone()).await.is(403);
    world.put(&olivia, &role(&otto), until.clone()).await.is(200);
    // The last one without an end can neither get one, nor another role, nor leave.
    let refused = world.put(&login, &role(&world.owner), until.clone()).await.is(409);
    assert!(refused.body.contains("no owner"), "{refused:?}");
    world
        .put(&login, &role(&world.owner), json!({"role": "admin"}))
        .await
        .is(409);
    world.delete(&login, &format!("~/users/{}", world.owner)).await.is(409);
    let lasting = json!({"role": "owner", "expires_at": null});
    world.put(&olivia, &role(&otto), lasting).await.is(200);
    world.put(&login, &role(&world.owner), until).await.is(200);
}

async fn nobody_prolongs_their_own_membership(world: World) {
    let olivia = world.owner().await;
    let (adam, login) = world.user(&olivia, &world.organization, "Adam", "admin").await;
    let path = format!("~/users/{adam}");
    let role = format!("{path}/role");
    let until = json!({"role": "admin", "expires_at": end_in(3_600).to_string()});
    world.put(&olivia, &role, until.clone()).await.is(200);
    for later in [json!(null), json!(end_in(7_200).to_string())] {
        let later = json!({"role": "admin", "expires_at": later});
        world.put(&login, &role, later).await.is(403);
    }
    let past = json!({"role": "admin", "expires_at": "2020-01-01T00:00:00Z"});
    world.put(&olivia, &role, past).await.is(422);
    // A client that does not know the end keeps it.
    for same in [json!({"role": "member"}), until.clone()] {
        let set = world.put(&olivia, &role, same).await.is(200);
        assert_eq!(set.json()["expires_at"], until["expires_at"]);
    }
    let echo = world.get(&olivia, &path).await.is(200).json();
    world.put(&olivia, &path, echo).await.is(200);
    let changed = world.patch(&olivia, &path, json!({"role_expires_at": null})).await;
    assert_eq!(changed.is(422).json()["field"], "role_expires_at");
    let body = json!({"name": "Carol", "email": "carol@example.org", "role_expires_at": until["expires_at"]});
    let carol = world.post(&olivia, "~/users", body).await.is(201);
    assert_eq!(carol.json()["role_expires_at"], until["expires_at"]);
}
