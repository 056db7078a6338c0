//! The fate of the users of an organization that is deleted.

use serde_json::json;
use sqlx::{AnyConnection, Connection as _};

use crate::fixture::ssh_key;
use crate::world::{PASSWORD, World, on_both};

on_both!(
    a_member_of_another_organization_outlives_the_home,
    a_key_that_is_not_accepted_any_more_is_still_that_of_one_user,
);

/// Returns the number of objects of a kind in the organization: as counted, and as stored.
async fn counted(world: &World, kind: &str, organization: &str) -> (i64, i64) {
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let counts = "SELECT CAST(COALESCE(SUM(count), 0) AS BIGINT) FROM counts WHERE kind = $1 AND organization_id = $2";
    let stored = "SELECT COUNT(*) FROM objects WHERE kind = $1 AND organization_id = $2";
    let mut numbers = Vec::new();
    for statement in [counts, stored] {
        let number: (i64,) = sqlx::query_as(statement)
            .bind(kind)
            .bind(organization)
            .fetch_one(&mut database)
            .await
            .unwrap();
        numbers.push(number.0);
    }
    (numbers[0], numbers[1])
}

async fn a_member_of_another_organization_outlives_the_home(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let going = world.another_organization(&olivia, "Going").await;
    let inside = format!("/v3/organizations/{going}");
    let (alice, login) = world.user(&olivia, &going, "Alice", "owner").await;
    let (max, of_max) = world.user(&olivia, &going, "Max", "member").await;
    let (otto, of_otto) = world.user(&olivia, &going, "Otto", "member").await;
    let role = json!({"role": "member"});
    world
        .put(&olivia, &format!("~/users/{alice}/role"), role.clone())
        .await
        .is(200);
    let key = json!({"name": "own", "key": ssh_key()});
    world.post(&login, "/v3/account/ssh_keys", key).await.is(201);
    let team = json!({"name": "Shift", "description": "", "user_ids": [alice]});
    let team = world.post(&olivia, "~/teams", team).await.is(201).field("id");
    world
        .put(&olivia, &format!("/v3/operators/{otto}"), json!({}))
        .await
        .is(200);
    // An operator would be deleted: only operators may do this, and none is lost by it.
    world.delete(&login, &inside).await.is(403);
    let refused = world.delete(&olivia, &inside).await.is(409);
    assert!(
        refused.body.contains(&otto) && refused.body.contains("member of no other organization"),
        "{refused:?}"
    );
    world.get(&of_max, "/v3/account").await.is(200);
    world.put(&olivia, &format!("~/users/{otto}/role"), role).await.is(200);
    world.delete(&olivia, &inside).await.is(204);
    // The logins, keys, teams and roles elsewhere stay, and the organization that remains is the home.
    for token in [&login, &of_otto] {
        world.get(token, "/v3/account").await.is(200);
        world.get(token, &inside).await.is(404);
    }
    world.get(&of_otto, "/v3/operators").await.is(200);
    let told = world.get(&login, "/v3/authenticate").await.is(200).json();
    assert_eq!(told["organizations"], json!([{"id": home, "role": "member"}]));
    let shown = world.get(&olivia, &format!("~/users/{alice}")).await.is(200).json();
    assert_eq!(shown["ssh_keys"].as_array().unwrap().len(), 1);
    let team = world.get(&olivia, &format!("~/teams/{team}")).await.is(200).json();
    assert_eq!(team["user_ids"], json!([alice]));
    world
        .patch(&login, "/v3/account", json!({"name": "Alice Again"}))
        .await
        .is(200);
    let password = json!({"password": "another good password"});
    world
        .put(&olivia, &format!("~/users/{alice}/password"), password)
        .await
        .is(204);
    world.get(&login, "/v3/account").await.is(401);
    world.log_in("alice@example.org", "another good password").await.is(200);
    // Who was a member of nothing else is gone.
    world.get(&of_max, "/v3/account").await.is(401);
    world.log_in("max@example.org", PASSWORD).await.is(401);
    world.get(&olivia, &format!("~/users/{max}")).await.is(404);
    for kind in ["users", "ssh-keys", "tokens", "passwords", "operators", "memberships"] {
        assert_eq!(counted(&world, kind, &going).await, (0, 0), "{kind}");
        let (count, stored) = counted(&world, kind, &home).await;
        assert!(count == stored && stored > 0, "{kind}: {count} {stored}");
    }
}

/// Adding a member compares the keys by their names: one that this version would refuse is still in `authorized_keys`
/// of nodes with an older agent.
async fn a_key_that_is_not_accepted_any_more_is_still_that_of_one_user(world: World) {
    let olivia = world.owner().await;
    let second = world.another_organization(&olivia, "Second").await;
    let (max, of_max) = world.user(&olivia, &world.organization, "Max", "member").await;
    let (sven, of_sven) = world.user(&olivia, &second, "Sven", "member").await;
    let key = json!({"name": "own", "key": ssh_key()});
    let made = world.post(&of_max, "/v3/account/ssh_keys", key.clone()).await.is(201);
    let its = world.post(&of_sven, "/v3/account/ssh_keys", key).await.is(201);
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let refused = json!({"name": "own", "key": "ssh-dss AAAAB3NzaC1kc3MAAACB"}).to_string();
    let older = sqlx::query("UPDATE objects SET spec = $1 WHERE kind = 'ssh-keys' AND id = $2")
        .bind(refused)
        .bind(its.field("id"));
    assert_eq!(older.execute(&mut database).await.unwrap().rows_affected(), 1);
    let role = format!("~/users/{sven}/role");
    let refused = world.put(&olivia, &role, json!({"role": "member"})).await.is(409);
    assert!(refused.body.contains(&max), "{refused:?}");
    world
        .delete(&of_max, &format!("/v3/account/ssh_keys/{}", made.field("id")))
        .await
        .is(204);
    world.put(&olivia, &role, json!({"role": "member"})).await.is(200);
}
