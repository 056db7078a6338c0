//! Many clusters ask for one changed list at once: it is read once, and nobody gets an older one than was seen.

use futures::future::join_all;
use serde_json::json;

use crate::fixture;
use crate::world::{World, on_both};

on_both!(
    a_changed_list_is_read_once_for_all,
    a_list_is_as_new_as_the_last_answer,
    a_report_of_one_cluster_empties_no_list_of_others,
);

async fn computed(world: &World) -> u64 {
    let metrics = world.get("", "/metrics").await.is(200).body;
    let lines = metrics.lines();
    let mut counts = lines.filter_map(|line| line.strip_prefix("tidewaiter_cloud_lists_computed_total "));
    counts.next().unwrap().parse().unwrap()
}

async fn a_changed_list_is_read_once_for_all(world: World) {
    let owner = world.owner().await;
    let mut keys = Vec::new();
    for number in 0..64 {
        let name = json!({"name": format!("cluster-{number}")});
        keys.push(world.post(&owner, "~/clusters", name).await.is(201).field("api_key"));
    }
    // All of them are known, and have a connection.
    join_all(keys.iter().map(|key| world.get(key, "~/users"))).await;
    let before = computed(&world).await;
    for number in 1..=5 {
        let name = json!({"name": format!("Olivia {number}")});
        world.patch(&owner, "/v3/account", name).await.is(200);
        for answer in join_all(keys.iter().map(|key| world.get(key, "~/users"))).await {
            let answer = answer.is(200);
            assert!(answer.body.contains(&format!("Olivia {number}")), "{answer:?}");
        }
        assert_eq!(computed(&world).await, before + number);
    }
}

async fn a_list_is_as_new_as_the_last_answer(world: World) {
    let owner = world.owner().await;
    let readers = async {
        for _ in 0..100 {
            join_all((0..4).map(|_| world.get(&owner, "~/registries"))).await;
        }
    };
    let writer = async {
        for number in 1..=30 {
            let registry = fixture::registry(&format!("r{number}"));
            world.post(&owner, "~/registries", registry).await.is(201);
            let listed = world.get(&owner, "~/registries").await.is(200).json();
            assert_eq!(listed.as_array().unwrap().len(), number);
        }
    };
    futures::join!(readers, writer);
}

async fn a_report_of_one_cluster_empties_no_list_of_others(world: World) {
    let owner = world.owner().await;
    let made = async |name: &str| world.post(&owner, "~/clusters", json!({ "name": name })).await.is(201);
    let (one, other) = (made("one").await, made("other").await);
    let (one_key, other_key) = (one.field("api_key"), other.field("api_key"));
    let below = format!("~/clusters/{}/plugins", one.field("id"));
    let all = async || {
        for path in ["~/roles", "~/users", &below] {
            world.get(&one_key, path).await.is(200);
        }
    };
    all().await;
    let before = computed(&world).await;
    let reports = format!("~/clusters/{}/status", other.field("id"));
    for percent in ["10", "20", "30"] {
        let report = json!({"status": {"type": "UPDATING", "percent": percent}});
        world.put(&other_key, &reports, report).await.is(200);
        all().await;
    }
    assert_eq!(computed(&world).await, before);
    // The list of clusters has it, and so has the cluster's own.
    let listed = world.get(&owner, "~/clusters").await.is(200).body;
    assert!(listed.contains("UPDATING"), "{listed}");
    world
        .delete(&owner, &format!("~/clusters/{}", one.field("id")))
        .await
        .is(204);
    world.get(&owner, &below).await.is(404);
}
