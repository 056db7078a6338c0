//! To what an object refers: it must be there and one's own, what is used stays, and what hangs on what goes, goes.

use serde_json::json;

use crate::fixture::{self, Fixture};
use crate::refusals::refused;
use crate::world::{World, on_both};

on_both!(
    what_is_referred_to_must_be_there_and_ones_own,
    what_is_used_stays_and_what_hangs_on_it_goes,
);

async fn what_is_referred_to_must_be_there_and_ones_own(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, near, far) = (&fixture.world, fixture.token("owner"), &fixture.near, &fixture.far);
    let unknown = "9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e";
    let team = json!({"name": "Sample", "description": "", "user_ids": [near.of("user"), ""]});
    let binding = json!({"type": "UserBinding", "user_id": near.of("user"), "authorization_role_id": near.of("roles"), "cluster_id": null});
    let of_team =
        json!({"type": "TeamBinding", "team_id": near.of("teams"), "authorization_role_id": near.of("roles")});
    let cluster = json!({"name": "sample"});
    for (path, body, pointer, field, kind) in [
        ("/teams", team, "/user_ids/1", "user_ids[1]", "user"),
        ("/role-bindings", binding.clone(), "/user_id", "user_id", "user"),
        (
            "/role-bindings",
            binding.clone(),
            "/authorization_role_id",
            "authorization_role_id",
            "roles",
        ),
        (
            "/role-bindings",
            binding.clone(),
            "/cluster_id",
            "cluster_id",
            "cluster",
        ),
        ("/role-bindings", of_team.clone(), "/team_id", "team_id", "teams"),
        ("/clusters", cluster, "/provider_id", "provider_id", "providers"),
    ] {
        let path = fixture.near(path);
        let mut told = Vec::new();
        // Nobody's, another organization's, and of another kind.
        for id in [unknown, far.of(kind), near.of("organization")] {
            let mut body = body.clone();
            match body.pointer_mut(pointer) {
                Some(place) => *place = json!(id),
                None => body[field] = json!(id),
            }
            let answer = refused(world, owner, &path, &body, field).await;
            told.push(answer.json()["message"].as_str().unwrap().replace(id, "ID"));
        }
        assert!(told.iter().all(|message| *message == told[0]), "{told:?}");
    }
    // The same of a change.
    let path = fixture.near("/role-bindings/{id}");
    for (field, kind) in [
        ("user_id", "user"),
        ("authorization_role_id", "roles"),
        ("cluster_id", "cluster"),
    ] {
        let answer = world.patch(owner, &path, json!({ field: far.of(kind) })).await.is(422);
        assert_eq!(answer.json()["field"], field);
    }
    world
        .post(owner, &fixture.near("/role-bindings"), of_team)
        .await
        .is(201);
    // A version must be one of the catalogue that is not disabled, and one to which one may go.
    let plugin = fixture.near("/clusters/{cluster_id}/plugins/{id}");
    let refused = world.patch(owner, &plugin, json!({"version": "1.0.1"})).await.is(422);
    assert_eq!(refused.json()["field"], "version");
    let versions = "/v3/plugins/metrics/implementations/prometheus/versions";
    let mut next = fixture::plugin_version("1.0.1");
    next["disabled"] = json!(true);
    world
        .put(fixture.token("operator"), &format!("{versions}/1.0.1"), next)
        .await
        .is(200);
    world.patch(owner, &plugin, json!({"version": "1.0.1"})).await.is(422);
    world
        .put(
            fixture.token("operator"),
            &format!("{versions}/1.0.1"),
            fixture::plugin_version("1.0.1"),
        )
        .await
        .is(200);
    world.patch(owner, &plugin, json!({"version": "1.0.1"})).await.is(200);
    world
        .patch(owner, &plugin, json!({"implementation": "other"}))
        .await
        .is(422);
}

async fn what_is_used_stays_and_what_hangs_on_it_goes(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let at = |rest: &str| fixture.near(rest);
    let of_team = json!({"type": "TeamBinding", "team_id": fixture.near.of("teams"), "authorization_role_id": fixture.near.of("roles")});
    let bound = world
        .post(owner, &at("/role-bindings"), of_team)
        .await
        .is(201)
        .field("id");
    let refused = world.delete(owner, &at("/roles/{id}")).await.is(409);
    assert!(refused.body.contains("role binding"), "{refused:?}");
    world.delete(owner, &at("/teams/{id}")).await.is(204);
    world.get(owner, &at(&format!("/role-bindings/{bound}"))).await.is(404);
    world.delete(owner, &at("/role-bindings/{id}")).await.is(204);
    world.delete(owner, &at("/roles/{id}")).await.is(204);
    let provided = json!({"name": "provided", "provider_id": fixture.near.of("providers")});
    let provided = world.post(owner, &at("/clusters"), provided).await.is(201).field("id");
    world.delete(owner, &at("/providers/{id}")).await.is(409);
    world.delete(owner, &at(&format!("/clusters/{provided}"))).await.is(204);
    world.delete(owner, &at("/providers/{id}")).await.is(204);
    let version = "/v3/plugins/metrics/implementations/prometheus/versions/1.0.0";
    let used = world.delete(fixture.token("operator"), version).await.is(409);
    assert!(!used.body.contains(fixture.near.of("cluster")) && !used.body.contains(fixture.near.of("plugins")));
    // A policy goes from the pools that it scales; a cluster with all that is in it.
    let assigned = at("/clusters/{cluster_id}/node-pools/{node_pool_id}/autoscaling-policies");
    let policy = fixture.near.of("autoscaling-policies");
    world
        .put(owner, &format!("{assigned}/{policy}"), json!({}))
        .await
        .is(204);
    assert_eq!(
        world
            .get(owner, &assigned)
            .await
            .is(200)
            .json()
            .as_array()
            .unwrap()
            .len(),
        1
    );
    world
        .delete(
            owner,
            &at(&format!("/clusters/{{cluster_id}}/autoscaling-policies/{policy}")),
        )
        .await
        .is(204);
    assert_eq!(world.get(owner, &assigned).await.is(200).body, "[]");
    world.delete(owner, &at("/clusters/{cluster_id}")).await.is(204);
    for rest in [
        "",
        "/labels",
        "/node-pools/{node_pool_id}",
        "/nodes/{id}",
        "/plugins/{id}",
        "/upgrades/{id}",
    ] {
        world
            .get(owner, &at(&format!("/clusters/{{cluster_id}}{rest}")))
            .await
            .is(404);
    }
    world.get(fixture.token("cluster"), &at("/users")).await.is(401);
    // Its name is free again, and what is new has nothing of what was.
    let again = world
        .post(owner, &at("/clusters"), json!({"name": "prod"}))
        .await
        .is(201)
        .field("id");
    assert_eq!(
        world
            .get(owner, &at(&format!("/clusters/{again}/labels")))
            .await
            .is(200)
            .body,
        "[]"
    );
}
