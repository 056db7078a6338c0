//! An SSH key is that of one user wherever nodes see both.

use futures::future::join_all;
use serde_json::json;
use sqlx::{AnyConnection, Connection as _};

use crate::fixture::ssh_key;
use crate::world::{World, on_both};

const OWN: &str = "/v3/account/ssh_keys";

on_both!(
    members_of_one_organization_have_no_key_in_common,
    of_users_who_add_one_key_at_once_one_has_it,
    a_key_that_two_users_had_before_is_shown_and_can_be_changed,
);

async fn members_of_one_organization_have_no_key_in_common(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (max_id, max) = world.user(&olivia, &home, "Max", "member").await;
    let (moritz_id, moritz) = world.user(&olivia, &home, "Moritz", "read_only").await;
    let key = ssh_key();
    let same = json!({"name": "other", "key": key.replace("somebody", "somebody-else")});
    let made = world.post(&max, OWN, json!({"name": "own", "key": key})).await.is(201);
    let of_max = format!("{OWN}/{}", made.field("id"));
    let remedy = format!("tidewaiter cloud delete ssh-key {} --user {max_id}", made.field("id"));
    let keys = format!("~/users/{moritz_id}/ssh_keys");
    let mine = world
        .post(&moritz, OWN, json!({"name": "mine", "key": ssh_key()}))
        .await;
    let mine = format!("{keys}/{}", mine.is(201).field("id"));
    for refused in [
        world.post(&moritz, OWN, same.clone()).await,
        world.post(&olivia, &keys, same.clone()).await,
        world.put(&moritz, &mine, same.clone()).await,
        world.patch(&olivia, &mine, json!({"key": key})).await,
    ] {
        assert!(refused.is(409).body.contains(&remedy));
    }
    // Only who may see the members learns whose it is, and only who may change them takes it away.
    world
        .delete(&moritz, &format!("~/users/{max_id}/ssh_keys/{}", made.field("id")))
        .await
        .is(403);
    let stranger = world.another_organization(&olivia, "Strangers").await;
    let (_, sam) = world.user(&olivia, &stranger, "Sam", "owner").await;
    for hidden in ["users".to_owned(), format!("users/{max_id}/ssh_keys")] {
        let path = format!("/v3/organizations/{home}/{hidden}");
        world.get(&sam, &path).await.is(404);
    }
    // Somebody whom no node knows beside Max may have it, and then does not become a member beside him.
    let second = world.another_organization(&olivia, "Second").await;
    let (sven_id, sven) = world.user(&olivia, &second, "Sven", "member").await;
    world.post(&sven, OWN, same.clone()).await.is(201);
    let role = |organization: &str, user: &str| format!("/v3/organizations/{organization}/users/{user}/role");
    let member = json!({"role": "member"});
    let refused = world.put(&olivia, &role(&second, &max_id), member.clone()).await;
    assert!(refused.is(409).body.contains(&sven_id));
    // Moritz is in both, and cannot have the key of either.
    world.put(&olivia, &role(&second, &moritz_id), member).await.is(200);
    world.delete(&max, &of_max).await.is(204);
    let refused = world.post(&moritz, OWN, same.clone()).await.is(409);
    assert!(refused.body.contains(&sven_id));
    world
        .delete(&olivia, &format!("/v3/organizations/{second}/users/{sven_id}"))
        .await
        .is(204);
    world.post(&moritz, OWN, same).await.is(201);
}

async fn of_users_who_add_one_key_at_once_one_has_it(world: World) {
    let olivia = world.owner().await;
    // A database in a file has one server.
    let replica = match world.database.scheme() {
        "sqlite" => None,
        _ => Some(world.replica().await),
    };
    let mut tokens = Vec::new();
    for number in 0..8 {
        let name = format!("User{number}");
        tokens.push(world.user(&olivia, &world.organization, &name, "member").await.1);
    }
    for _ in 0..5 {
        let key = json!({"name": "own", "key": ssh_key()});
        let servers = [Some(&world), replica.as_ref()].into_iter().flatten().cycle();
        let added = tokens
            .iter()
            .zip(servers)
            .map(|(token, server)| server.post(token, OWN, key.clone()));
        let mut statuses: Vec<_> = join_all(added).await.into_iter().map(|it| it.status.as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [201, 409, 409, 409, 409, 409, 409, 409]);
    }
}

async fn a_key_that_two_users_had_before_is_shown_and_can_be_changed(world: World) {
    let olivia = world.owner().await;
    let home = world.organization.clone();
    let (_, max) = world.user(&olivia, &home, "Max", "member").await;
    let (id, moritz) = world.user(&olivia, &home, "Moritz", "member").await;
    let one = world
        .post(&max, OWN, json!({"name": "a", "key": ssh_key()}))
        .await
        .is(201);
    let other = world
        .post(&moritz, OWN, json!({"name": "b", "key": ssh_key()}))
        .await
        .is(201);
    sqlx::any::install_default_drivers();
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    for statement in [
        "UPDATE objects SET spec = (SELECT spec FROM objects WHERE kind = 'ssh-keys' AND id = $1) WHERE id = $2",
        "UPDATE names SET name = (SELECT name FROM names WHERE kind = 'ssh-keys' AND id = $1) WHERE id = $2",
    ] {
        let copied = sqlx::query(statement).bind(one.field("id")).bind(other.field("id"));
        assert_eq!(copied.execute(&mut database).await.unwrap().rows_affected(), 1);
    }
    let listed = world.get(&olivia, "~/users").await.is(200).body;
    assert_eq!(listed.matches(&one.field("fingerprint")).count(), 2);
    let path = format!("~/users/{id}/ssh_keys/{}", other.field("id"));
    let renamed = world.patch(&moritz, &path, json!({"name": "c"})).await.is(200);
    assert_eq!(renamed.field("fingerprint"), one.field("fingerprint"));
    world.delete(&moritz, &path).await.is(204);
}
