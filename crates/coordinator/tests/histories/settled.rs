//! The final state after a while without faults: the cluster is as the cloud says, and nothing is written any more.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tidewaiter_api::names::NODE_POOL_LABEL;

use crate::invariants::{OF_A_PERSON, REPLICA};
use crate::objects::{KINDS, Kind, id};
use crate::truth::{NODES, node_name};
use crate::world::{World, sleep};

/// The differences between the cluster and the cloud.
pub fn differences(world: &World) -> Vec<String> {
    let mut wrong = Vec::new();
    for kind in KINDS {
        let said = world.cloud.lock().truth.objects(kind);
        for (resource, _) in kind.resources() {
            let wanted = said
                .iter()
                .map(|(number, value)| (Kind::name(resource, *number), format!("v{value}")));
            let wanted: BTreeMap<String, String> = wanted.collect();
            let there = world.resources(resource).into_iter().filter_map(|object| {
                let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
                let is_mirrored = !name.starts_with(OF_A_PERSON) && !name.starts_with("tidewaiter-list-");
                is_mirrored.then(|| (name, Kind::shown(resource, &object)))
            });
            let there: BTreeMap<String, String> = there.collect();
            if wanted != there {
                wrong.push(format!(
                    "{resource}: the cloud says {wanted:?}, the cluster has {there:?}"
                ));
            }
        }
    }
    for number in 0..NODES {
        let name = node_name(number);
        let node = world.server.read(|objects| objects.get("nodes", "", &name).cloned());
        let Some(node) = node else { continue };
        let labels: BTreeMap<String, String> =
            serde_json::from_value(node["metadata"]["labels"].clone()).unwrap_or_default();
        let claim = labels.get(NODE_POOL_LABEL).map(String::as_str);
        let wanted = world.cloud.lock().truth.labels(number, claim);
        let ours =
            |key: &String| key.contains("cluster.containership.io/") || key.contains("nodepool.containership.io/");
        let there: BTreeMap<String, String> = labels.into_iter().filter(|(key, _)| ours(key)).collect();
        if wanted != there {
            wrong.push(format!("{name}: the cloud says {wanted:?}, it has {there:?}"));
        }
    }
    wrong
}

/// Checks that the cluster is as the cloud says, and that `CloudSync` says so.
pub fn check(world: &World) {
    for wrong in differences(world) {
        world.invariants.violated(format!("at rest, {wrong}"));
    }
    for (condition, wanted) in [("Synced", "True Applied"), ("Held", "False NothingHeld")] {
        let found = world.condition(condition);
        if found != wanted {
            let sync = world.resources("cloudsyncs");
            let violation = format!("at rest, {condition} is {found:?}: {sync:?}");
            world.invariants.violated(violation);
        }
    }
    let annotated = |sync: &Value| sync["metadata"]["annotations"].get("tidewaiter.dev/release").is_some();
    if world.resources("cloudsyncs").iter().any(annotated) {
        world
            .invariants
            .violated("at rest, the release is still there".to_owned());
    }
    for upgrade in world.resources("clusterupgrades") {
        let name = upgrade["metadata"]["name"].as_str().unwrap_or_default();
        if name.starts_with(OF_A_PERSON) && upgrade["spec"]["description"] != "mine" {
            world
                .invariants
                .violated(format!("at rest, a person's upgrade was changed: {upgrade}"));
        }
    }
}

/// Checks that nothing is written but the Lease, and that each list is requested at most once a minute (and once more).
pub async fn check_quiet(world: &World, time: Duration) {
    let (writes, asked) = (world.server.writes().len(), world.cloud.lock().asked.len());
    sleep(time).await;
    for write in world.server.writes().iter().skip(writes) {
        let is_ours = write.by.starts_with(REPLICA);
        if is_ours && write.resource != "leases" {
            let violation = format!("written although nothing happens: {write}");
            world.invariants.violated(violation);
        }
    }
    let mut requests = BTreeMap::<String, u64>::new();
    for asked in world.cloud.lock().asked.iter().skip(asked) {
        *requests.entry(asked.path.clone()).or_default() += 1;
    }
    // Two kinds are made of the registries, and of the node pools.
    let most = 2 * (time.as_secs() / 60 + 1);
    for (path, requests) in requests {
        if requests > most {
            world
                .invariants
                .violated(format!("at rest, {path} was requested {requests} times in {time:?}"));
        }
    }
}

/// From this number on, objects were never in the cloud.
pub const INTRUDERS: usize = 500;

/// The names of what is in the cluster and was never in the cloud.
pub fn intruder(number: usize) -> String {
    id(INTRUDERS + number)
}
