//! Invitations: a link works once, until its end, and gives what its author may give.

use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};

use crate::ends::end_in;
use crate::fixture::ssh_key;
use crate::world::{Answer, PASSWORD, World, on_both};

on_both!(
    a_person_accepts_a_link_once_and_chooses_the_password,
    a_secret_that_opens_nothing_says_nothing_and_is_not_guessed,
    a_person_with_an_account_accepts_with_the_own_login,
    an_invitation_is_worth_what_its_author_may_do,
    an_invitation_is_refused_that_nobody_could_accept,
    who_leaves_comes_back_by_no_open_invitation,
);

/// The secret in the link of an invitation.
pub fn secret(made: &Answer) -> String {
    let link: Url = made.field("link").parse().unwrap();
    assert_eq!(link.path(), "/invitation");
    let (name, secret) = link.query_pairs().next().unwrap();
    assert_eq!(name, "secret");
    secret.into_owned()
}

impl World {
    pub async fn invite(&self, token: &str, body: Value) -> Answer {
        self.post(token, "~/invitations", body).await.is(201)
    }

    pub async fn accept(&self, secret: &str, password: &str) -> Answer {
        let body = json!({"secret": secret, "name": "Ivy", "password": password});
        self.post("", "/v3/invitations/accept", body).await
    }
}

fn ivy(role: &str) -> Value {
    json!({"email": "Ivy@example.org", "role": role})
}

async fn a_person_accepts_a_link_once_and_chooses_the_password(world: World) {
    let olivia = world.owner().await;
    let (_, anna) = world.user(&olivia, &world.organization, "Anna", "admin").await;
    let team = json!({"name": "Shift", "user_ids": [world.owner]});
    let team = world.post(&anna, "~/teams", team).await.is(201).field("id");
    let end = end_in(3_600).to_string();
    let mut body = ivy("member");
    body["team_ids"] = json!([team]);
    body["role_expires_at"] = json!(end);
    let made = world.invite(&anna, body).await;
    let secret = secret(&made);
    assert!(made.field("link").starts_with("https://cloud.example.org/invitation?"));
    let days = made.field("expires_at").parse::<Timestamp>().unwrap() - SignedDuration::from_hours(7 * 24);
    assert!(days <= end_in(1) && days > end_in(-60), "{days}");
    let listed = world.get(&anna, "~/invitations").await.is(200);
    assert_eq!(listed.json()[0]["email"], "Ivy@example.org");
    // The link is shown once, and neither stored nor logged.
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let stored: (String, String) = sqlx::query_as("SELECT spec, secret FROM objects WHERE kind = 'invitations'")
        .fetch_one(&mut database)
        .await
        .unwrap();
    let audit = world.get(&olivia, "~/audit").await.is(200).body;
    let random = secret.splitn(3, '_').nth(2).unwrap();
    for text in [&listed.body, &stored.0, &stored.1, &audit] {
        assert!(!text.contains(random), "{text}");
    }

    let weak = world.accept(&secret, "short").await.is(422);
    assert_eq!(weak.json()["field"], "password");
    let accepted = world.accept(&secret, PASSWORD).await.is(200);
    let id = accepted.field("user_id");
    assert_eq!(accepted.field("organization_id"), world.organization);
    let shown = world.get(&olivia, &format!("~/users/{id}")).await.is(200).json();
    let fields = ["email", "role", "role_expires_at"].map(|field| shown[field].clone());
    assert_eq!(fields, [json!("Ivy@example.org"), json!("member"), json!(end)]);
    let team = world.get(&olivia, &format!("~/teams/{team}")).await.is(200).json();
    assert_eq!(team["user_ids"], json!([world.owner, id]));
    let login = world.log_in("ivy@example.org", PASSWORD).await.is(200).field("token");
    world.get(&login, "~").await.is(200);
    world.post(&login, "~/invitations", ivy("member")).await.is(403);
    world.accept(&secret, PASSWORD).await.is(422);
    let left = world.get(&anna, "~/invitations").await.is(200).json();
    assert_eq!(left, json!([]));
    let changes = world.changes(&olivia, "~/audit").await;
    let by = |kind: &str, action: &str| {
        let of = |row: &&Value| row["kind"] == kind && row["action"] == action;
        changes.iter().find(of).unwrap()["actor"].as_str().unwrap()
    };
    assert_eq!(by("invitations", "delete"), format!("user:{id}"));
    assert_eq!(by("memberships", "create"), format!("user:{id}"));
}

async fn a_secret_that_opens_nothing_says_nothing_and_is_not_guessed(world: World) {
    let olivia = world.owner().await;
    let mut secrets = Vec::new();
    for number in 0..4 {
        let body = json!({"email": format!("ivy{number}@example.org"), "role": "member"});
        let made = world.invite(&olivia, body).await;
        secrets.push((made.field("id"), secret(&made)));
    }
    let [(_, used), (revoked_id, revoked), (ended_id, ended), (_, open)] = &secrets[..] else {
        panic!("{secrets:?}");
    };
    world.accept(used, PASSWORD).await.is(200);
    world
        .delete(&olivia, &format!("~/invitations/{revoked_id}"))
        .await
        .is(204);
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let end = "UPDATE objects SET spec = REPLACE(spec, '\"expires_at\":\"20', '\"expires_at\":\"19') WHERE id = $1";
    let updated = sqlx::query(end).bind(ended_id).execute(&mut database).await.unwrap();
    assert_eq!(updated.rows_affected(), 1);
    let random = open.splitn(3, '_').nth(2).unwrap();
    let other = if random.starts_with('A') { "B" } else { "A" };
    let wrong = format!("{}{other}{}", &open[..open.len() - random.len()], &random[1..]);
    let mut answers = Vec::new();
    for secret in [used, revoked, ended, &wrong, &"twi_".to_owned(), &String::new()] {
        let answer = world.accept(secret, PASSWORD).await.is(422);
        answers.push(answer.body);
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let mut tried = 0;
    while world.accept(&wrong, PASSWORD).await.status == 422 {
        tried += 1;
        assert!(tried < 40, "guesses are not limited");
    }
    world.accept(&wrong, PASSWORD).await.is(429);
}

async fn a_person_with_an_account_accepts_with_the_own_login(world: World) {
    let olivia = world.owner().await;
    let second = world.another_organization(&olivia, "Second").await;
    let (ivy_id, login) = world.user(&olivia, &second, "Ivy", "member").await;
    let (_, eve) = world.user(&olivia, &second, "Eve", "member").await;
    world
        .post(
            &login,
            "/v3/account/ssh_keys",
            json!({"name": "laptop", "key": ssh_key()}),
        )
        .await
        .is(201);
    let secret = secret(&world.invite(&olivia, ivy("admin")).await);
    let body = json!({"secret": secret});
    // The link alone takes over no account, and the address alone is worth nothing.
    let refused = world.accept(&secret, "another good password").await.is(422);
    assert!(refused.body.contains("log in"), "{refused:?}");
    world.log_in("ivy@example.org", "another good password").await.is(401);
    world.post(&eve, "/v3/account/invitations", body.clone()).await.is(403);
    world.get(&login, "~").await.is(404);
    let wrong = json!({"secret": "twi_"});
    world.post(&login, "/v3/account/invitations", wrong).await.is(422);
    let accepted = world
        .post(&login, "/v3/account/invitations", body.clone())
        .await
        .is(200);
    assert_eq!(accepted.field("user_id"), ivy_id);
    world.get(&login, "~/invitations").await.is(200);
    world.post(&login, "/v3/account/invitations", body).await.is(422);
    // The home stays.
    let shown = world.get(&olivia, &format!("~/users/{ivy_id}")).await.is(200).json();
    assert_eq!((&shown["home"], &shown["role"]), (&Value::Bool(false), &json!("admin")));
    let again = world.post(&olivia, "~/invitations", ivy("member")).await.is(409);
    assert_eq!(again.json()["field"], "email");
}

async fn an_invitation_is_worth_what_its_author_may_do(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (anna, login) = world.user(&olivia, &home, "Anna", "admin").await;
    world.post(&login, "~/invitations", ivy("owner")).await.is(403);
    let link = secret(&world.invite(&login, ivy("member")).await);
    let role = format!("~/users/{anna}/role");
    world.put(&olivia, &role, json!({"role": "member"})).await.is(200);
    world.accept(&link, PASSWORD).await.is(422);
    world.put(&olivia, &role, json!({"role": "admin"})).await.is(200);
    world.accept(&link, PASSWORD).await.is(200);
    // An owner who is no owner any more has invited none.
    let (otto, login) = world.user(&olivia, &home, "Otto", "owner").await;
    let body = json!({"email": "new@example.org", "role": "owner"});
    let link = secret(&world.invite(&login, body).await);
    let role = format!("~/users/{otto}/role");
    world.put(&olivia, &role, json!({"role": "admin"})).await.is(200);
    world.accept(&link, PASSWORD).await.is(422);
    let body = json!({"email": "other@example.org", "role": "member"});
    let link = secret(&world.invite(&login, body).await);
    world.delete(&olivia, &format!("~/users/{otto}")).await.is(204);
    world.accept(&link, PASSWORD).await.is(422);
}

async fn an_invitation_is_refused_that_nobody_could_accept(world: World) {
    let olivia = world.owner().await;
    let far = end_in(31 * 86_400).to_string();
    for (field, value) in [
        ("email", json!("ivy")),
        ("role", json!("boss")),
        ("expires_at", json!("2020-01-01T00:00:00Z")),
        ("expires_at", json!(far)),
        ("role_expires_at", json!("2020-01-01T00:00:00Z")),
        ("team_ids[0]", json!([world.owner])),
        ("password", json!(PASSWORD)),
    ] {
        let mut body = ivy("member");
        body[field.trim_end_matches("[0]")] = value;
        let refused = world.post(&olivia, "~/invitations", body).await.is(422);
        assert_eq!(refused.json()["field"], field, "{refused:?}");
    }
}

async fn who_leaves_comes_back_by_no_open_invitation(world: World) {
    let olivia = world.owner().await;
    let link = secret(&world.invite(&olivia, ivy("member")).await);
    let (id, _) = world.user(&olivia, &world.organization, "Ivy", "member").await;
    let other = json!({"email": "other@example.org", "role": "member"});
    world.invite(&olivia, other).await;
    world.delete(&olivia, &format!("~/users/{id}")).await.is(204);
    world.accept(&link, PASSWORD).await.is(422);
    let left = world.get(&olivia, "~/invitations").await.is(200).json();
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
}
