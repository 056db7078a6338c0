//! A database that the previous version wrote: what is in it is shown in the form of this one.

use std::sync::Arc;

use serde_json::{Value, json};
use sqlx::{AnyConnection, Connection as _};
use tidewaiter_cloud::server::store;

use crate::fixture::{self, Fixture, pool};
use crate::old_types::{NodePool, decode};
use crate::stream::Listening;
use crate::world::{World, on_both, sqlite_url};

on_both!(what_the_previous_version_stored_is_shown_as_this_one_writes_it);

/// The statements with which the previous version's rows are put in the place of this one's.
async fn put_back(database: &mut AnyConnection, fixture: &Fixture) {
    let place = &fixture.near;
    for (kind, id, name, spec) in [
        (
            "labels",
            place.of("labels"),
            "env",
            json!({"key": "env", "value": "dev"}),
        ),
        (
            "node-pool-labels",
            place.of("pool labels"),
            "disk",
            json!({"key": "disk", "value": "ssd"}),
        ),
    ] {
        let rows = sqlx::query("UPDATE names SET name = $1 WHERE kind = $2 AND id = $3")
            .bind(name)
            .bind(kind)
            .bind(id);
        assert_eq!(rows.execute(&mut *database).await.unwrap().rows_affected(), 1);
        set(database, "spec", kind, id, &spec).await;
    }
    let mut cluster = json!({"name": "prod", "environment": null, "version": null, "api_server_address": null,
        "worker_nodes_address": null, "provider_id": null, "provider_name": null, "engine": null});
    cluster["provider_name"] = Value::Null;
    set(database, "spec", "clusters", place.of("cluster"), &cluster).await;
    let mut workers = pool("workers");
    workers["docker_version"] = Value::Null;
    workers["autoscaling"] = json!({"enabled": true, "max_nodes": 9, "engine": {"any": 1}});
    set(database, "spec", "node-pools", place.of("pool"), &workers).await;
    set(database, "spec", "nodes", place.of("nodes"), &json!({})).await;
    let mut plugin = fixture::plugin();
    plugin["configuration"] = json!({"admin": {"password": "hunter2"}});
    plugin["description"] = json!("");
    set(database, "spec", "plugins", place.of("plugins"), &plugin).await;
    let names = sqlx::query("DELETE FROM names WHERE kind = 'nodes'");
    names.execute(&mut *database).await.unwrap();
    let policy = json!({"type": "kubernetes", "api_groups": [], "resources": [], "resource_names": [], "verbs": ["get"],
        "non_resource_urls": ["/healthz"]});
    let role = json!({"name": "Reader", "description": "", "rules": [policy]});
    set(database, "spec", "roles", place.of("roles"), &role).await;
    let version = json!({"version": "1.0.0", "disabled": false, "configuration_schema": [],
        "compatibility": {"kubernetes": {"min": null, "max": null}, "upgrades": [], "plugins": {}}});
    set(
        database,
        "spec",
        "plugin-versions",
        "metrics/prometheus/1.0.0",
        &version,
    )
    .await;
    let running = json!({"type": "RUNNING", "percent": "1"});
    for (kind, id) in [("clusters", "cluster"), ("node-pools", "pool"), ("nodes", "nodes")] {
        set(database, "status", kind, place.of(id), &running).await;
    }
    let progress = json!({"clusterStatus": "InProgress", "nodeStatuses": {}, "currentNode": null,
        "currentStartTime": "1551441600"});
    set(database, "status", "upgrades", place.of("upgrades"), &progress).await;
    let tokens = sqlx::query("DELETE FROM names WHERE kind = 'tokens'");
    assert!(tokens.execute(&mut *database).await.unwrap().rows_affected() > 0);
    let migrations = sqlx::query("DELETE FROM _sqlx_migrations WHERE version > 1");
    assert_eq!(migrations.execute(&mut *database).await.unwrap().rows_affected(), 10);
}

async fn set(database: &mut AnyConnection, column: &str, kind: &str, id: &str, value: &Value) {
    let statement = match column {
        "spec" => "UPDATE objects SET spec = $1 WHERE kind = $2 AND id = $3",
        _ => "UPDATE objects SET status = $1 WHERE kind = $2 AND id = $3",
    };
    let rows = sqlx::query(statement).bind(value.to_string()).bind(kind).bind(id);
    assert_eq!(
        rows.execute(&mut *database).await.unwrap().rows_affected(),
        1,
        "{kind} {id}"
    );
}

/// A backup of the previous version is restored into the form of this one.
async fn assert_restored(fixture: &Fixture) {
    let (old, mut told) = (&fixture.world, |_| {});
    let mut copy = Vec::new();
    store::backup(&old.database, &mut copy, &mut told).await.unwrap();
    let database = sqlite_url(&old.folder.path().join("restored.db"));
    store::restore(&database, &mut &*copy, &mut told).await.unwrap();
    let mut restored = World::served(database, Arc::clone(&old.folder), old.ids(), |_| {})
        .await
        .unwrap();
    let labels = fixture.near("/clusters/{cluster_id}/labels");
    let seen = restored.get(fixture.token("owner"), &labels).await.is(200).json();
    assert_eq!(seen[0]["key"], "cluster.containership.io/env");
    let again = json!({"key": "cluster.containership.io/env", "value": ""});
    restored.post(fixture.token("owner"), &labels, again).await.is(409);
    restored.stop().await;
}

async fn what_the_previous_version_stored_is_shown_as_this_one_writes_it(world: World) {
    let mut fixture = Fixture::new(world).await;
    let (owner, cluster) = (fixture.token("owner").to_owned(), fixture.token("cluster").to_owned());
    let inside = fixture.near("/clusters/{cluster_id}");
    let cursor = Listening::to(&fixture.world, &cluster, &inside, None)
        .await
        .heard()
        .await
        .id;
    fixture.world.stop().await;
    let mut database = AnyConnection::connect(fixture.world.database.as_str()).await.unwrap();
    put_back(&mut database, &fixture).await;
    database.close().await.unwrap();
    assert_restored(&fixture).await;
    let old = &fixture.world;
    let world = World::served(old.database.clone(), Arc::clone(&old.folder), old.ids(), |_| {});
    let world = world.await.unwrap();
    let get = async |rest: &str| {
        world
            .get(&owner, &fixture.near(&format!("/clusters/{{cluster_id}}{rest}")))
            .await
            .is(200)
    };

    let (labels, pool_labels) = ("/labels", "/node-pools/{node_pool_id}/labels");
    for (list, key) in [
        (labels, "cluster.containership.io/env"),
        (pool_labels, "nodepool.containership.io/disk"),
    ] {
        assert_eq!(get(list).await.json()[0]["key"], key);
        // Its name is the whole key, too.
        let path = fixture.near(&format!("/clusters/{{cluster_id}}{list}"));
        world
            .post(&owner, &path, json!({"key": key, "value": ""}))
            .await
            .is(409);
    }
    // Who kept a list of bare keys is told to list again.
    let first = Listening::to(&world, &cluster, &inside, Some(&cursor))
        .await
        .heard()
        .await;
    assert_eq!(first.event, "reset");

    assert_eq!(get("").await.json()["provider_name"], "");
    let seen = get("/node-pools/{node_pool_id}").await;
    let group = decode::<NodePool>(&seen.body).autoscaling;
    assert_eq!((group.enabled, group.min_nodes, group.max_nodes), (true, 0, 9));
    assert_eq!(group.scaling_strategy.unwrap().scale_down, "random");
    assert_eq!(seen.json()["docker_version"], "");
    // It is changed as any other, in spite of a field that is no longer one.
    let path = fixture.near("/clusters/{cluster_id}/node-pools/{node_pool_id}");
    assert_eq!(
        world.patch(&owner, &path, json!({"count": 4})).await.is(200).json()["count"],
        4
    );
    for rest in ["", "/node-pools/{node_pool_id}", "/nodes/{id}"] {
        assert_eq!(
            get(rest).await.json()["status"],
            json!({"type": "RUNNING", "message": "", "percent": 1})
        );
    }
    assert_eq!(get("/nodes").await.json()[0]["name"], Value::Null);
    let started = get("/upgrades").await.json()[0]["status"]["currentStartTime"].clone();
    assert_eq!(started, "Fri Mar  1 12:00:00 UTC 2019");
    let role = world.get(&owner, &fixture.near("/roles/{id}")).await.is(200).json();
    assert_eq!(role["rules"][0]["api_groups"], Value::Null);
    let version = world
        .get(&owner, "/v3/plugins/metrics/implementations/prometheus/versions/1.0.0")
        .await
        .is(200);
    assert_eq!(
        version.json()["compatibility"]["kubernetes"],
        json!({"min": "", "max": ""})
    );
    assert_plugin(&world, &fixture, &owner).await;
    assert_named(&world).await;
}

/// Each token has the name from which its expiry is read.
async fn assert_named(world: &World) {
    let mut database = AnyConnection::connect(world.database.as_str()).await.unwrap();
    let statement = "SELECT objects.id, objects.parent_id, objects.spec, names.scope_id, names.name FROM objects \
                     LEFT JOIN names ON names.kind = objects.kind AND names.id = objects.id WHERE objects.kind = 'tokens'";
    let found: Vec<(String, String, String, String, String)> =
        sqlx::query_as(statement).fetch_all(&mut database).await.unwrap();
    assert!(!found.is_empty());
    for (id, parent, spec, scope, name) in found {
        let spec: Value = serde_json::from_str(&spec).unwrap();
        assert_eq!(name, format!("{} {id}", spec["expires_at"].as_str().unwrap()));
        assert_eq!(scope, parent);
    }
}

/// A plugin whose configuration would be refused today: it is shown, and everything else of it can be changed.
async fn assert_plugin(world: &World, fixture: &Fixture, owner: &str) {
    let path = fixture.near("/clusters/{cluster_id}/plugins/{id}");
    let configuration = json!({"admin": {"password": "hunter2"}});
    let seen = world.get(owner, &path).await.is(200).json();
    assert_eq!(seen["configuration"], configuration);
    let described = world
        .patch(owner, &path, json!({"description": "metrics"}))
        .await
        .is(200);
    assert_eq!(described.json()["configuration"], configuration);
    world.put(owner, &path, described.json()).await.is(200);
    let refused = world
        .patch(owner, &path, json!({"configuration": {"a": 1}}))
        .await
        .is(422);
    assert!(
        refused.body.contains("configuration.admin.password") && !refused.body.contains("hunter2"),
        "{refused:?}"
    );
    let unknown = world
        .patch(owner, &path, json!({"descripton": "metrics"}))
        .await
        .is(422);
    assert!(
        unknown.body.contains("nearest known field is description"),
        "{unknown:?}"
    );
    let without = json!({"configuration": {"admin": {"password": null, "existingSecret": "grafana"}}});
    let changed = world.patch(owner, &path, without).await.is(200).json();
    assert_eq!(
        changed["configuration"],
        json!({"admin": {"existingSecret": "grafana"}})
    );
}
