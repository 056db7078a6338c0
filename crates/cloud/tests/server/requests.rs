//! The properties of every request: repeated responses, lists in parts, patches, and responses that clients can read.

use reqwest::Method;
use serde_json::{Value, json};
use tidewaiter_cloud::models::{
    AutoscalingPolicy, Cluster, ClusterLabel, Model, Node, NodePool, NodePoolLabel, Organization, Plugin,
    PluginDefinition, Provider, Registry, Role, RoleBinding, SshKey, Team, Unknown, Upgrade, User, parse, parse_list,
};

use crate::fixture::{self, Fixture, role};
use crate::world::{Answer, World, on_both};

on_both!(
    a_request_with_a_key_is_answered_once_and_for_all,
    a_list_in_parts_is_the_list,
    a_page_whose_last_item_was_deleted_has_a_next_one,
    clients_read_every_list_and_item,
    a_list_below_what_is_gone_is_not_an_empty_one,
    a_patch_takes_away_what_is_null,
    a_header_that_counts_once_is_there_once,
);

async fn a_header_that_counts_once_is_there_once(world: World) {
    let owner = world.owner().await;
    for name in [
        "authorization",
        "content-type",
        "host",
        "idempotency-key",
        "last-event-id",
    ] {
        let request = world.request(&owner, Method::POST, "~/clusters");
        let twice = request.header(name, "Bearer one").header(name, "Bearer two");
        let refused = world.send(twice.json(&json!({"name": "prod"}))).await.is(400);
        assert!(
            refused.body.contains(&format!("{name}: is there more than once")),
            "{}",
            refused.body
        );
    }
}

/// A request with one more header.
pub async fn conditional(
    world: &World,
    token: &str,
    method: Method,
    path: &str,
    header: (&str, &str),
    body: &Value,
) -> Answer {
    let request = world.request(token, method, path).header(header.0, header.1);
    world
        .send(if body.is_null() { request } else { request.json(body) })
        .await
}

async fn a_request_with_a_key_is_answered_once_and_for_all(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner, admin) = (&fixture.world, fixture.token("owner"), fixture.token("admin"));
    let (path, before) = (fixture.near("/clusters"), 2);
    let post = async |token: &str, path: &str, key: &str, body: Value| {
        conditional(world, token, Method::POST, path, ("idempotency-key", key), &body).await
    };
    let first = post(owner, &path, "one", json!({"name": "new"})).await.is(201);
    assert_eq!(first.header("idempotency-replayed"), "");
    // The same, with the key that is shown once.
    let again = post(owner, &path, "one", json!({"name": "new"})).await.is(201);
    assert_eq!(again.header("idempotency-replayed"), "true");
    for header in ["location", "etag", "content-type"] {
        assert!(!first.header(header).is_empty());
        assert_eq!(first.header(header), again.header(header), "{header}");
    }
    assert_eq!(first.body, again.body);
    world
        .get(&first.field("api_key"), &format!("{path}/{}", first.field("id")))
        .await
        .is(200);
    // Another request, of the same path or another.
    for (path, body) in [
        (path.clone(), json!({"name": "other"})),
        (fixture.near("/roles"), role("new")),
    ] {
        let refused = post(owner, &path, "one", body).await.is(422);
        assert_eq!(refused.json()["field"], "Idempotency-Key");
    }
    // What somebody else calls so is another.
    post(admin, &path, "one", json!({"name": "admin's"})).await.is(201);
    // What was refused may be tried again.
    post(owner, &path, "two", json!({"name": "new"})).await.is(409);
    post(owner, &path, "two", json!({"name": ""})).await.is(422);
    post(owner, &path, "two", json!({"name": "newer"})).await.is(201);
    for bad in [&*"k".repeat(256), "", "a\tb"] {
        let refused = post(owner, &path, bad, json!({"name": "bad"})).await.is(422);
        assert_eq!(refused.json()["field"], "Idempotency-Key", "{bad:?}");
    }
    post(owner, &path, &"k".repeat(255), json!({"name": "long"}))
        .await
        .is(201);
    // At once.
    let all = (0..20).map(|_| post(owner, &path, "three", json!({"name": "newest"})));
    let all = futures::future::join_all(all).await;
    let made = all
        .iter()
        .filter(|answer| answer.header("idempotency-replayed").is_empty());
    assert_eq!(made.count(), 1);
    assert!(
        all.iter()
            .all(|answer| answer.status == 201 && answer.body == all[0].body),
        "{all:?}"
    );
    let clusters = world.get(owner, &path).await.is(200).json();
    assert_eq!(clusters.as_array().unwrap().len(), before + 5);
    // It is not a way around a role that was lost.
    let organization = fixture.near("/users");
    let users = world.get(owner, &organization).await.is(200).json();
    let id = users
        .as_array()
        .unwrap()
        .iter()
        .find(|user| user["role"] == "admin")
        .unwrap()["id"]
        .clone();
    let role = format!("{organization}/{}/role", id.as_str().unwrap());
    world.put(owner, &role, json!({"role": "member"})).await.is(200);
    post(admin, &path, "one", json!({"name": "admin's"})).await.is(403);
}

async fn a_list_in_parts_is_the_list(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let labels = fixture.near("/clusters/{cluster_id}/labels");
    for number in 0..24 {
        // Not in the order of their keys.
        let label = json!({"key": format!("cluster.containership.io/k{:02}", (number * 7) % 24), "value": ""});
        world.post(owner, &labels, label).await.is(201);
    }
    for path in [labels.clone(), fixture.near("/users"), fixture.near("/roles")] {
        let whole = world.get(owner, &path).await.is(200);
        assert_eq!(whole.header("link"), "");
        let whole: Vec<Value> = serde_json::from_str(&whole.body).unwrap();
        for limit in [1, 7, 24, 25, 1_000] {
            let (mut found, mut next) = (Vec::new(), format!("{path}?limit={limit}&colour=blue"));
            loop {
                let part = world.get(owner, &next).await.is(200);
                let etag = part.header("etag");
                let same = conditional(world, owner, Method::GET, &next, ("if-none-match", &etag), &Value::Null);
                assert_eq!(same.await.is(304).header("link"), part.header("link"));
                let items: Vec<Value> = serde_json::from_str(&part.body).unwrap();
                assert!(!items.is_empty() && items.len() <= limit);
                found.extend(items);
                let link = part.header("link");
                let Some((url, rel)) = link.split_once(">; ") else {
                    break;
                };
                assert_eq!(rel, "rel=\"next\"");
                url.trim_start_matches('<').clone_into(&mut next);
            }
            assert_eq!(found, whole, "{path} by {limit}");
        }
        for bad in [
            "limit=0",
            "limit=1001",
            "limit=-1",
            "limit=ten",
            "after=9f3d1c9e-6a0b-4c57-8d7e-1f2a3b4c5d6e",
            "after=x",
        ] {
            let refused = world.get(owner, &format!("{path}?{bad}")).await.is(400);
            assert_eq!(refused.json()["field"], bad.split('=').next().unwrap());
        }
    }
}

async fn a_page_whose_last_item_was_deleted_has_a_next_one(world: World) {
    let owner = world.owner().await;
    for number in 0..6 {
        world
            .post(&owner, "~/roles", role(&format!("Role {number}")))
            .await
            .is(201);
    }
    for number in 0..2 {
        world
            .user(&owner, &world.organization, &format!("User{number}"), "member")
            .await;
    }
    for (list, limit) in [("~/roles", 2), ("~/users", 1)] {
        let whole = world.get(&owner, list).await.is(200).json();
        let whole: Vec<&str> = whole
            .as_array()
            .unwrap()
            .iter()
            .map(|item| item["id"].as_str().unwrap())
            .collect();
        // The owner cannot be deleted.
        let first = world.get(&owner, &format!("{list}?limit={}", limit + 1)).await.is(200);
        let deleted = whole[limit];
        world.delete(&owner, &format!("{list}/{deleted}")).await.is(204);
        let link = first.header("link");
        let next = link.trim_start_matches('<').split('>').next().unwrap();
        let part = world.get(&owner, next).await.is(200).json();
        assert_eq!(part[0]["id"], whole[limit + 1], "{list}");
    }
}

fn read_as<T: Model>(answer: &Answer) {
    parse_list::<T>(answer.body.as_bytes(), Unknown::Ignore).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
    assert_ne!(answer.body, "[]");
}

fn item_as<T: Model>(answer: &Answer) {
    parse::<T>(answer.body.as_bytes(), Unknown::Ignore).unwrap_or_else(|error| panic!("{error}: {answer:?}"));
}

async fn clients_read_every_list_and_item(world: World) {
    let fixture = Fixture::new(world).await;
    let world = &fixture.world;
    let reported = json!({"status": {"type": "RUNNING", "percent": "1"}});
    for path in [
        "/clusters/{cluster_id}/status",
        "/clusters/{cluster_id}/nodes/{id}/status",
    ] {
        world
            .put(fixture.token("cluster"), &fixture.near(path), reported.clone())
            .await
            .is(200);
    }
    let inside = |rest: &str| fixture.near(&format!("/clusters/{{cluster_id}}{rest}"));
    for (name, all) in [("owner", true), ("read_only", true), ("cluster", false)] {
        let token = fixture.token(name);
        let get = async |path: String| world.get(token, &path).await.is(200);
        read_as::<User>(&get(fixture.near("/users")).await);
        read_as::<Registry>(&get(fixture.near("/registries")).await);
        read_as::<Role>(&get(fixture.near("/roles")).await);
        read_as::<Role>(&get(inside("/roles")).await);
        read_as::<RoleBinding>(&get(fixture.near("/role-bindings")).await);
        read_as::<Plugin>(&get(inside("/plugins")).await);
        item_as::<Plugin>(&get(inside("/plugins/{id}")).await);
        item_as::<tidewaiter_cloud::models::PluginManifests>(
            &get(format!("{}?previous_version=0.9.0", inside("/plugins/{id}"))).await,
        );
        read_as::<ClusterLabel>(&get(inside("/labels")).await);
        read_as::<NodePool>(&get(inside("/node-pools")).await);
        read_as::<NodePoolLabel>(&get(inside("/node-pools/{node_pool_id}/labels")).await);
        read_as::<Node>(&get(inside("/node-pools/{node_pool_id}/nodes")).await);
        read_as::<Node>(&get(inside("/nodes")).await);
        read_as::<AutoscalingPolicy>(&get(inside("/autoscaling-policies")).await);
        read_as::<Upgrade>(&get(inside("/upgrades")).await);
        item_as::<Cluster>(&get(inside("")).await);
        item_as::<Organization>(&get(fixture.near("")).await);
        read_as::<PluginDefinition>(&get("/v3/plugins/metrics".to_owned()).await);
        if all {
            read_as::<Team>(&get(fixture.near("/teams")).await);
            read_as::<Provider>(&get(fixture.near("/providers")).await);
            read_as::<Cluster>(&get(fixture.near("/clusters")).await);
            read_as::<SshKey>(&get(fixture.near("/users/{user_id}/ssh_keys")).await);
            read_as::<Organization>(&get("/v3/organizations".to_owned()).await);
            item_as::<tidewaiter_cloud::models::Account>(&get("/v3/account".to_owned()).await);
        }
    }
    // Below a cluster roles show their rules on demand alone, and a role without is not one with none.
    let token = fixture.token("cluster");
    let rules = async |path: String| world.get(token, &path).await.is(200).json()[0]["rules"].clone();
    assert_eq!(rules(inside("/roles")).await, Value::Null);
    assert_eq!(
        rules(inside("/roles?side_load=rules")).await.as_array().unwrap().len(),
        1
    );
    assert_eq!(
        rules(inside("/roles?side_load=rules&rule_type=containership")).await,
        json!([])
    );
    let none = inside("/roles?side_load=rules&rule_type=containership&remove_empty=true");
    assert_eq!(world.get(token, &none).await.is(200).body, "[]");
    for (wrong, field) in [
        ("rule_type=kubernets", "rule_type"),
        ("remove_empty=yes", "remove_empty"),
        ("side_load=rule", "side_load"),
    ] {
        let refused = world.get(token, &inside(&format!("/roles?{wrong}"))).await.is(400);
        assert_eq!(refused.json()["field"], field, "{refused:?}");
    }
    let script = world
        .get(token, &inside("/nodes/{id}/upgrade/kubernetes?version=1.30.1"))
        .await
        .is(200);
    assert_eq!(script.body, fixture::SCRIPT);
}

async fn a_list_below_what_is_gone_is_not_an_empty_one(world: World) {
    let owner = world.owner().await;
    let made = world.post(&owner, "~/clusters", json!({"name": "prod"})).await.is(201);
    let inside = format!("~/clusters/{}", made.field("id"));
    let pool = world
        .post(&owner, &format!("{inside}/node-pools"), fixture::pool("workers"))
        .await
        .is(201);
    let pool = format!("{inside}/node-pools/{}", pool.field("id"));
    let (user, _) = world.user(&owner, &world.organization, "Max", "member").await;
    let user = format!("~/users/{user}");
    for (above, below) in [
        (&pool, "nodes labels autoscaling-policies"),
        (&user, "ssh_keys"),
        (&inside, "labels plugins nodes node-pools upgrades api-keys roles"),
    ] {
        let lists: Vec<String> = below.split(' ').map(|list| format!("{above}/{list}")).collect();
        // Twice: the second answer may be the first one's, kept.
        for list in lists.iter().chain(&lists) {
            world.get(&owner, list).await.is(200);
        }
        world.delete(&owner, above).await.is(204);
        for list in &lists {
            world.get(&owner, list).await.is(404);
        }
    }
}

async fn a_patch_takes_away_what_is_null(world: World) {
    let fixture = Fixture::new(world).await;
    let (world, owner) = (&fixture.world, fixture.token("owner"));
    let plugin = fixture.near("/clusters/{cluster_id}/plugins/{id}");
    let set = json!({"description": "some", "configuration": {"a": 1, "b": {"c": [1, 2], "d": 2}}});
    world.patch(owner, &plugin, set).await.is(200);
    let merged = world
        .patch(
            owner,
            &plugin,
            json!({"description": null, "configuration": {"a": null, "b": {"c": [3]}}}),
        )
        .await
        .is(200)
        .json();
    assert_eq!(merged["configuration"], json!({"b": {"c": [3], "d": 2}}));
    assert!(
        merged["description"].is_null() || merged["description"] == "",
        "{merged}"
    );
    let needed = world.patch(owner, &plugin, json!({"type": null})).await.is(422);
    assert_eq!(needed.json()["field"], "type");
    let registry = fixture.near("/registries/{id}");
    world
        .patch(owner, &registry, json!({"email": "ci@example.org"}))
        .await
        .is(200);
    let kept = world
        .patch(owner, &registry, json!({"email": null}))
        .await
        .is(200)
        .json();
    assert_eq!(kept["credentials"]["password"], "hunter2 registry");
    let changed = json!({"credentials": {"password": "hunter2 again"}});
    let changed = world.patch(owner, &registry, changed).await.is(200).json();
    assert_eq!(
        changed["credentials"],
        json!({"username": "puller", "password": "hunter2 again"})
    );
    let seen = world
        .get(fixture.token("cluster"), &fixture.near("/registries"))
        .await
        .is(200);
    assert!(seen.body.contains("hunter2 again"), "{seen:?}");
}
