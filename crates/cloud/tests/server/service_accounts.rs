//! Service accounts: programs of an organization, which are no users; and tokens that outlive a password.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_cloud::models::Kind;
use tidewaiter_kit::{Clock as _, SystemClock};

use crate::fixture::role;
use crate::token_quotas::claims;
use crate::world::{Answer, PASSWORD, World, on_both};

on_both!(
    a_service_account_acts_with_its_role_until_it_is_deleted,
    a_service_account_is_no_user,
    a_service_account_creates_no_credential_that_outlives_it,
    a_service_account_revokes_its_own_token,
    no_program_adds_rules_to_a_bound_role,
    a_token_of_a_service_account_ends_with_it_and_needs_a_recent_login,
    an_organization_has_as_many_service_accounts_as_its_quota,
    a_password_ends_logins_and_tokens_only_if_asked,
    an_operator_is_added_soon_after_a_login,
);

const ACCOUNTS: &str = "~/service-accounts";

async fn create(world: &World, token: &str, role: &str) -> String {
    let body = json!({"name": format!("ci {role}"), "role": role});
    world.post(token, ACCOUNTS, body).await.is(201).field("id")
}

async fn token_of(world: &World, by: &str, account: &str, seconds: u32) -> Answer {
    let body = json!({"name": "ci", "expires_in_seconds": seconds});
    world.post(by, &format!("{ACCOUNTS}/{account}/tokens"), body).await
}

async fn a_service_account_acts_with_its_role_until_it_is_deleted(world: World) {
    let olivia = world.owner().await;
    let account = create(&world, &olivia, "admin").await;
    let path = format!("{ACCOUNTS}/{account}");
    let made = token_of(&world, &olivia, &account, 3600).await.is(201);
    let token = made.field("token");
    assert_eq!(made.field("service_account_id"), account);
    let known = world.get(&token, "/v3/authenticate").await.is(200).json();
    assert_eq!(known["type"], "service_account");
    assert_eq!(known["service_account_id"], *account);
    assert_eq!(
        known["organizations"],
        json!([{"id": world.organization, "role": "admin"}])
    );
    let made = world.post(&token, "~/roles", role("By a program")).await.is(201);
    assert_eq!(made.field("owner_id"), account);
    let audit = world.changes(&olivia, "~/audit?limit=100").await;
    assert_eq!(audit[0]["actor"], format!("service_account:{account}"));
    // A change of the role and the deletion count from the next request on.
    world.patch(&olivia, &path, json!({"role": "read_only"})).await.is(200);
    world.post(&token, "~/roles", role("Another")).await.is(403);
    world.get(&token, "~/roles").await.is(200);
    let listed = world.get(&olivia, &format!("{path}/tokens")).await.is(200).json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["token"], Value::Null);
    let other = token_of(&world, &olivia, &account, 3600).await.is(201);
    let revoke = format!("{path}/tokens/{}", other.field("id"));
    world.delete(&olivia, &revoke).await.is(204);
    world.get(&other.field("token"), "~").await.is(401);
    world.get(&token, "~").await.is(200);
    world.delete(&olivia, &path).await.is(204);
    world.get(&token, "~").await.is(401);
    world.get(&olivia, &format!("{path}/tokens")).await.is(404);
    token_of(&world, &olivia, &account, 3600).await.is(404);
}

async fn a_service_account_is_no_user(world: World) {
    let olivia = world.owner().await;
    let account = create(&world, &olivia, "member").await;
    let token = token_of(&world, &olivia, &account, 3600).await.is(201).field("token");
    let made = world.post(&olivia, "~/clusters", json!({"name": "prod"})).await.is(201);
    let cluster = format!("~/clusters/{}", made.field("id"));
    for list in ["~/users", &*format!("{cluster}/ssh-users")] {
        for caller in [&olivia, &token] {
            let users = world.get(caller, list).await.is(200).body;
            assert!(!users.contains(&account) && users.contains(&world.owner), "{users}");
        }
    }
    for path in ["/v3/account", "/v3/organizations", "/v3/operators"] {
        world.get(&token, path).await.is(403);
    }
    let kubectl = world.post(&token, &format!("{cluster}/token"), json!({})).await;
    assert!(kubectl.is(403).body.contains("kubectl"));
    // Nothing that is for users takes its id, and it is no owner.
    let reader = world.post(&olivia, "~/roles", role("Reader")).await.is(201).field("id");
    let binding = json!({"type": "UserBinding", "user_id": account, "authorization_role_id": reader});
    world.post(&olivia, "~/role-bindings", binding).await.is(422);
    let team = json!({"name": "Programs", "user_ids": [account]});
    world.post(&olivia, "~/teams", team).await.is(422);
    let (user, operator) = (format!("~/users/{account}/role"), format!("/v3/operators/{account}"));
    world.put(&olivia, &user, json!({"role": "owner"})).await.is(404);
    world.put(&olivia, &operator, json!({})).await.is(404);
    let owner = json!({"name": "owner", "role": "owner"});
    let refused = world.post(&olivia, ACCOUNTS, owner).await.is(422);
    assert_eq!(refused.json()["field"], "role");
    // Another organization does not know it.
    let elsewhere = world.another_organization(&olivia, "Elsewhere").await;
    let tokens = format!("/v3/organizations/{elsewhere}/service-accounts/{account}/tokens");
    world.get(&olivia, &tokens).await.is(404);
    let body = json!({"name": "ci", "expires_in_seconds": 3600});
    world.post(&olivia, &tokens, body).await.is(404);
    world
        .get(&token, &format!("/v3/organizations/{elsewhere}"))
        .await
        .is(404);
}

async fn a_service_account_creates_no_credential_that_outlives_it(world: World) {
    let olivia = world.owner().await;
    let made = world.post(&olivia, "~/clusters", json!({"name": "prod"})).await.is(201);
    let keys = format!("~/clusters/{}/api-keys", made.field("id"));
    let account = create(&world, &olivia, "admin").await;
    let token = token_of(&world, &olivia, &account, 3600).await.is(201).field("token");
    world.post(&token, &keys, json!({})).await.is(403);
    let staging = json!({"name": "staging"});
    let refused = world.post(&token, "~/clusters", staging.clone()).await.is(403);
    assert!(refused.body.contains("scope"), "{refused:?}");
    let team = json!({"name": "Friends", "user_ids": [world.owner]});
    world.post(&token, "~/teams", team).await.is(403);
    let reader = world.post(&olivia, "~/roles", role("Reader")).await.is(201).field("id");
    let binding = json!({"type": "UserBinding", "user_id": world.owner, "authorization_role_id": reader});
    world.post(&token, "~/role-bindings", binding).await.is(403);
    // A scope that names clusters permits what it names, and no further key.
    let body = json!({"name": "ci", "expires_in_seconds": 3600, "scope": {"kinds": ["clusters"]}});
    let made = world.post(&olivia, &format!("{ACCOUNTS}/{account}/tokens"), body).await;
    let token = made.is(201).field("token");
    world.post(&token, "~/clusters", staging).await.is(201);
    world.post(&token, &keys, json!({})).await.is(403);
}

async fn a_service_account_revokes_its_own_token(world: World) {
    let olivia = world.owner().await;
    let account = create(&world, &olivia, "read_only").await;
    let token = async || token_of(&world, &olivia, &account, 3600).await.is(201);
    let (own, other) = (token().await, token().await);
    let by_id = format!("/v3/account/tokens/{}", other.field("id"));
    let own = own.field("token");
    world.delete(&own, &by_id).await.is(403);
    world.delete(&own, "/v3/account/tokens/current").await.is(204);
    world.get(&own, "~").await.is(401);
    world.get(&other.field("token"), "~").await.is(200);
}

/// A role that nobody has gives nothing until a person binds it.
async fn no_program_adds_rules_to_a_bound_role(world: World) {
    let olivia = world.owner().await;
    let account = create(&world, &olivia, "admin").await;
    let program = token_of(&world, &olivia, &account, 3600).await.is(201).field("token");
    let scope = json!({"kinds": ["roles", "role-bindings"]});
    let body = json!({"name": "ci", "expires_in_seconds": 3600, "scope": scope});
    let scoped = world.post(&olivia, "/v3/account/tokens", body).await.is(201);
    let programs = [program, scoped.field("token")];
    let whole = role("Reader");
    let id = world.post(&olivia, "~/roles", whole.clone()).await.is(201).field("id");
    let path = format!("~/roles/{id}");
    let (looks, mut deletes) = (whole["rules"][0].clone(), whole["rules"][0].clone());
    deletes["verbs"] = json!(["delete"]);
    for program in &programs {
        for rules in [json!([looks, deletes]), json!([looks])] {
            world.patch(program, &path, json!({ "rules": rules })).await.is(200);
        }
    }
    let binding = json!({"type": "UserBinding", "user_id": world.owner, "authorization_role_id": id});
    world.post(&olivia, "~/role-bindings", binding).await.is(201);
    for program in &programs {
        for rules in [json!([looks, deletes]), json!([deletes])] {
            let refused = world.patch(program, &path, json!({ "rules": rules })).await.is(403);
            assert!(refused.body.contains("the role is bound"), "{refused:?}");
            let mut changed = whole.clone();
            changed["rules"] = rules;
            world.put(program, &path, changed).await.is(403);
        }
        // It may describe the role, and take away.
        world
            .patch(program, &path, json!({"description": "looks"}))
            .await
            .is(200);
        world.patch(program, &path, json!({"rules": []})).await.is(200);
        world.patch(&olivia, &path, json!({"rules": [looks]})).await.is(200);
    }
    world.patch(&olivia, &path, json!({"rules": [deletes]})).await.is(200);
}

/// Makes the login older than what counts as recent.
async fn age(world: &World, login: &str) {
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let before = SystemClock.now() - SignedDuration::from_mins(11);
    let aged = sqlx::query("UPDATE objects SET created_at = $1 WHERE kind = 'tokens' AND id = $2")
        .bind(before.to_string())
        .bind(claims(login)["jti"].as_str().unwrap().to_owned());
    assert_eq!(aged.execute(&mut database).await.unwrap().rows_affected(), 1);
}

async fn a_token_of_a_service_account_ends_with_it_and_needs_a_recent_login(world: World) {
    const YEAR: u32 = 365 * 86_400;
    let olivia = world.owner().await;
    let account = create(&world, &olivia, "read_only").await;
    let tokens = format!("{ACCOUNTS}/{account}/tokens");
    let endless = world.post(&olivia, &tokens, json!({"name": "ci"})).await.is(422);
    assert_eq!(endless.json()["field"], "expires_in_seconds");
    token_of(&world, &olivia, &account, YEAR + 1).await.is(422);
    let token = token_of(&world, &olivia, &account, YEAR).await.is(201).field("token");
    // A token of a program makes none that outlives it, and neither does an old login.
    let program = json!({"name": "ci", "expires_in_seconds": 3600});
    let program = world.post(&olivia, "/v3/account/tokens", program).await.is(201);
    token_of(&world, &program.field("token"), &account, YEAR).await.is(403);
    age(&world, &olivia).await;
    let refused = token_of(&world, &olivia, &account, YEAR).await.is(403);
    assert!(refused.body.contains("tidewaiter cloud login"), "{refused:?}");
    token_of(&world, &olivia, &account, 3600).await.is(201);
    // The end of the service account is that of its tokens.
    world.get(&token, "~").await.is(200);
    let end = Timestamp::from_second(SystemClock.now().as_second() + 30).unwrap();
    world
        .patch(
            &olivia,
            &format!("{ACCOUNTS}/{account}"),
            json!({"expires_at": end.to_string()}),
        )
        .await
        .is(200);
    let known = world.get(&token, "/v3/authenticate").await.is(200).json();
    assert_eq!(known["exp"], end.as_second());
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let past = "UPDATE objects SET spec = REPLACE(spec, $1, '2020-01-01T00:00:00Z') WHERE kind = 'service-accounts'";
    let ended = sqlx::query(past).bind(end.to_string()).execute(&mut database).await;
    assert_eq!(ended.unwrap().rows_affected(), 1);
    let fresh = token_of(&world, &olivia, &account, 3600).await.is(201).field("token");
    world.get(&fresh, "~").await.is(401);
}

async fn an_organization_has_as_many_service_accounts_as_its_quota(world: World) {
    let world = world
        .restarted(|parts| parts.quotas = [(Kind::ServiceAccount, 1)].into())
        .await;
    let olivia = world.owner().await;
    create(&world, &olivia, "admin").await;
    let another = json!({"name": "another", "role": "admin"});
    let refused = world.post(&olivia, ACCOUNTS, another).await.is(403);
    assert!(refused.body.contains("quotas.service-accounts"), "{refused:?}");
}

async fn a_password_ends_logins_and_tokens_only_if_asked(world: World) {
    let olivia = world.owner().await;
    let (id, _) = world.user(&olivia, &world.organization, "Max", "member").await;
    let path = format!("~/users/{id}/password");
    let by_admin = async |fields: Value| {
        let mut body = json!({"password": PASSWORD});
        body.as_object_mut()
            .unwrap()
            .extend(fields.as_object().unwrap().clone());
        world.put(&olivia, &path, body).await.is(204);
    };
    let session = async || world.log_in("max@example.org", PASSWORD).await.is(200).field("token");
    for (fields, ends) in [
        (json!({}), false),
        (json!({"end_tokens": false}), false),
        (json!({"end_tokens": true}), true),
    ] {
        for is_own in [true, false] {
            let (login, second) = (session().await, session().await);
            let body = json!({"name": "ci", "expires_in_seconds": 3600});
            let made = world.post(&login, "/v3/account/tokens", body).await;
            let token = made.is(201).field("token");
            if is_own {
                let mut body = json!({"old_password": PASSWORD, "new_password": "another good password"});
                body.as_object_mut()
                    .unwrap()
                    .extend(fields.as_object().unwrap().clone());
                world.put(&login, "/v3/account/password", body).await.is(204);
                world.get(&login, "/v3/account").await.is(200);
            } else {
                by_admin(fields.clone()).await;
                world.get(&login, "/v3/account").await.is(401);
            }
            world.get(&second, "/v3/account").await.is(401);
            let status = if ends { 401 } else { 200 };
            world.get(&token, "/v3/account").await.is(status);
            by_admin(json!({"end_tokens": true})).await;
            world.get(&token, "/v3/account").await.is(401);
        }
    }
    let wrong = json!({"password": PASSWORD, "end_tokens": "yes"});
    let refused = world.put(&olivia, &path, wrong).await.is(422);
    assert_eq!(refused.json()["field"], "end_tokens");
}

async fn an_operator_is_added_soon_after_a_login(world: World) {
    let olivia = world.owner().await;
    let (otto, _) = world.user(&olivia, &world.organization, "Otto", "owner").await;
    let path = format!("/v3/operators/{otto}");
    let program = json!({"name": "ci", "expires_in_seconds": 3600});
    let program = world.post(&olivia, "/v3/account/tokens", program).await.is(201);
    world.put(&program.field("token"), &path, json!({})).await.is(403);
    age(&world, &olivia).await;
    let refused = world.put(&olivia, &path, json!({})).await.is(403);
    assert!(refused.body.contains("tidewaiter cloud login"), "{refused:?}");
    let again = world.owner().await;
    world.put(&again, &path, json!({})).await.is(200);
}
