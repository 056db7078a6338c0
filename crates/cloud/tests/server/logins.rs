//! Logins end when their owner, or an owner of the home organization, ends them; and what is private stays so.

use serde_json::json;

use crate::world::{World, on_both};

on_both!(
    a_token_revokes_itself,
    owners_at_home_end_the_logins_of_a_user,
    a_user_is_in_as_many_teams_as_a_token_can_name,
    a_private_telephone_number_is_in_no_audit,
);

async fn a_token_revokes_itself(world: World) {
    let (one, other) = (world.owner().await, world.owner().await);
    world.delete(&one, "/v3/account/tokens/current").await.is(204);
    world.get(&one, "/v3/account").await.is(401);
    world.get(&other, "/v3/account").await.is(200);
}

async fn owners_at_home_end_the_logins_of_a_user(world: World) {
    let olivia = world.owner().await;
    let elsewhere = world.another_organization(&olivia, "Elsewhere").await;
    let (alice, login) = world.user(&olivia, &world.organization, "Alice", "member").await;
    let (_, admin) = world.user(&olivia, &world.organization, "Adam", "admin").await;
    let (_, other) = world.user(&olivia, &elsewhere, "Otto", "owner").await;
    let inside = format!("/v3/organizations/{elsewhere}/users/{alice}");
    world
        .put(&olivia, &format!("{inside}/role"), json!({"role": "owner"}))
        .await
        .is(200);
    let token = json!({"name": "ci", "expires_in_seconds": 3600});
    let token = world
        .post(&login, "/v3/account/tokens", token)
        .await
        .is(201)
        .field("token");
    let home = format!("~/users/{alice}/tokens");
    world.delete(&admin, &home).await.is(403);
    world.delete(&other, &home).await.is(404);
    world.delete(&other, &format!("{inside}/tokens")).await.is(403);
    for token in [&login, &token] {
        world.get(token, "/v3/account").await.is(200);
    }
    world.delete(&olivia, &home).await.is(204);
    for token in [&login, &token] {
        world.get(token, "/v3/account").await.is(401);
    }
    world.get(&admin, "/v3/account").await.is(200);
}

async fn a_user_is_in_as_many_teams_as_a_token_can_name(world: World) {
    let olivia = world.owner().await;
    let made = world.post(&olivia, "~/clusters", json!({"name": "prod"})).await.is(201);
    let team = |number: usize| json!({"name": format!("Team {number}"), "description": "", "user_ids": [world.owner]});
    let mut last = String::new();
    for number in 0..80 {
        last = world.post(&olivia, "~/teams", team(number)).await.is(201).field("id");
    }
    let refused = world.post(&olivia, "~/teams", team(80)).await.is(422);
    assert_eq!(refused.json()["field"], "user_ids[0]", "{refused:?}");
    assert!(refused.body.contains("is in 80 teams"), "{refused:?}");
    // A team that the user is in can be changed, and the token names all of them.
    world
        .patch(&olivia, &format!("~/teams/{last}"), json!({"name": "Renamed"}))
        .await
        .is(200);
    let token = format!("~/clusters/{}/token", made.field("id"));
    world.post(&olivia, &token, json!({})).await.is(200);
    let empty = json!({"name": "Empty", "description": "", "user_ids": []});
    let empty = world.post(&olivia, "~/teams", empty).await.is(201).field("id");
    let join = json!({"user_ids": [world.owner]});
    world.patch(&olivia, &format!("~/teams/{empty}"), join).await.is(422);
}

async fn a_private_telephone_number_is_in_no_audit(world: World) {
    let olivia = world.owner().await;
    let phone = json!({"phone": "+49 30 1234567"});
    let account = world.patch(&olivia, "/v3/account", phone).await.is(200);
    assert_eq!(account.field("phone"), "+49 30 1234567");
    world
        .patch(&olivia, "/v3/account", json!({"name": "Olivia"}))
        .await
        .is(200);
    let audit = world.get(&olivia, "~/audit").await.is(200).body;
    assert!(audit.contains("\"Olivia\"") && !audit.contains("1234567"), "{audit}");
}
