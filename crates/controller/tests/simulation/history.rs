//! The random events in a world, one after another.

use std::time::Duration;

use serde_json::{Value, json};
use tidewaiter_api::names::{ROLE_CONTROL_PLANE_LABEL, UNIDENTIFIED_TAINT};
use tidewaiter_testkit::sim::Faults;

use crate::cloud::Mood;
use crate::files::Broken;
use crate::replica::{away, disturb};
use crate::truth::{
    CLUSTER_FILE, GROUPS, Instance, KEYS, MINE, MISSING, SIZE, address, group_file, node_name, provider_id,
};
use crate::world::{World, sleep};

/// The labels that users and kubelets set: those that groups define, their own, the group's name and the control-plane
/// role.
const SET: [&str; 5] = [
    KEYS[0],
    KEYS[1],
    MINE,
    "kops.k8s.io/instancegroup",
    ROLE_CONTROL_PLANE_LABEL,
];
const VALUES: [&str; 3] = ["1", "2", "3"];

/// The length of a history.
const LENGTH: Duration = Duration::from_mins(3);
const STEPS: u64 = 20;

/// Runs a history.
pub async fn play(world: &World, random: &mut fastrand::Rng) {
    for number in 0..SIZE {
        if random.u8(..4) > 0 {
            register(world, number, random);
        }
    }
    world.server.set_faults(Faults::drawn(random));
    let longest = LENGTH.as_millis() / u128::from(STEPS) * 2;
    let end = world.server.elapsed() + LENGTH;
    while world.server.elapsed() < end {
        step(world, random);
        // Some events are almost simultaneous.
        if random.u8(..3) > 0 {
            sleep(Duration::from_millis(
                random.u64(..u64::try_from(longest).unwrap()) * 3 / 2,
            ))
            .await;
        } else {
            sleep(Duration::from_millis(random.u64(..20))).await;
        }
    }
}

/// Ends all faults.
pub fn calm(world: &World) {
    world.say(|| "all is well from now on".to_owned());
    world.server.set_faults(Faults::none());
    world.server.set_away(false);
    for resource in ["nodes", "nodeidentities"] {
        world.server.set_rejected(resource, false);
    }
    world.mend();
    world.cloud.lock().unwrap().mood = Mood::Well;
    world.server.collect_garbage();
}

fn step(world: &World, random: &mut fastrand::Rng) {
    let node = random.usize(..SIZE);
    match random.u32(..100) {
        0..12 => {
            delete(world, node, random);
            register(world, node, random);
        }
        12..16 => delete(world, node, random),
        16..24 => edit(world, node, "its kubelet sets a label", |node| {
            let key = SET[random.usize(..SET.len())];
            node["metadata"]["labels"][key] = VALUES[random.usize(..VALUES.len())].into();
        }),
        24..28 => edit(world, node, "somebody removes a label", |node| {
            if let Some(labels) = node["metadata"]["labels"].as_object_mut() {
                labels.remove(SET[random.usize(..SET.len())]);
            }
        }),
        28..34 => edit(world, node, "its kubelet reports", |node| {
            node["status"]["phase"] = random.u32(..).to_string().into();
        }),
        34..38 => {
            let lies = random.usize(..SIZE);
            edit(world, node, "its kubelet changes its address", |node| {
                node["status"]["addresses"] = addresses(lies);
            });
        }
        38..42 => edit(world, node, "somebody taints it", |node| taint(node, random.bool())),
        42..50 if world.instances_change => change_instance(world, node, random),
        42..60 => define(world, random),
        60..66 => spoil(world, random),
        66..69 => world.mend(),
        69..76 => change_cloud(world, random),
        76..79 => {
            let faults = Faults::drawn(random);
            world.say(|| format!("{faults:?}"));
            world.server.set_faults(faults);
        }
        79..84 => away(&world.server, random, |what| world.say(|| what)),
        84..86 => world.server.compact(),
        86..87 => world.server.break_watches(),
        87..89 => {
            let resource = ["nodes", "nodeidentities"][random.usize(..2)];
            world.say(|| format!("an admission policy rejects {resource}"));
            world.server.set_rejected(resource, true);
        }
        89..90 => {
            if world.server.delete("person", "nodeidentities", "", &node_name(node)) {
                world.say(|| format!("somebody deletes the record of node {node}"));
            }
        }
        90..91 => {
            let name = node_name(node);
            let orphan = |record: &mut Value| record["metadata"]["ownerReferences"] = json!([]);
            if world.server.edit("person", "nodeidentities", "", &name, orphan) {
                world.say(|| format!("somebody removes the owner of the record of node {node}"));
            }
        }
        _ => {
            let replicas = world.replicas.lock().unwrap().clone();
            disturb(&replicas, 4, random, |what| world.say(|| what));
        }
    }
}

pub fn addresses(number: usize) -> Value {
    json!([{"type": "InternalIP", "address": address(number).to_string()}, {"type": "Hostname", "address": "x"}])
}

/// Creates the Node; usually honest.
fn register(world: &World, number: usize, random: &mut fastrand::Rng) {
    let claims = if random.u8(..4) > 0 {
        number
    } else {
        random.usize(..SIZE + 2)
    };
    let mut node = json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(number), "labels": {"topology.kubernetes.io/zone": node_name(number)}},
        "spec": {}, "status": {},
    });
    if claims <= SIZE {
        node["spec"]["providerID"] = provider_id(if claims < SIZE { claims } else { MISSING }).into();
    } else if random.bool() {
        node["spec"]["providerID"] = "no providerID".into();
    }
    if random.bool() {
        node["status"]["addresses"] = addresses(claims);
    }
    if random.bool() {
        node["spec"]["taints"] = json!([{"key": UNIDENTIFIED_TAINT, "effect": "NoSchedule"}]);
    }
    if random.u8(..4) == 0 {
        node["metadata"]["labels"][SET[random.usize(..SET.len())]] = VALUES[random.usize(..VALUES.len())].into();
    }
    if world.server.create("kubelet", &node) {
        world.say(|| format!("node {number} registers as {}", node["spec"]["providerID"]));
    }
}

fn delete(world: &World, number: usize, random: &mut fastrand::Rng) {
    if world.server.delete("person", "nodes", "", &node_name(number)) {
        world.say(|| format!("node {number} is deleted"));
    }
    if random.bool() {
        world.server.collect_garbage();
    }
}

fn edit(world: &World, number: usize, what: &str, change: impl FnOnce(&mut Value)) {
    if world.server.edit("kubelet", "nodes", "", &node_name(number), change) {
        world.say(|| format!("node {number}: {what}"));
    }
}

fn taint(node: &mut Value, comes: bool) {
    let mut taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    taints.retain(|taint| taint["key"] != "dedicated");
    if comes {
        taints.push(json!({"key": "dedicated", "effect": "NoExecute"}));
    }
    node["spec"]["taints"] = taints.into();
}

fn change_instance(world: &World, number: usize, random: &mut fastrand::Rng) {
    let mut truth = world.truth.lock().unwrap();
    let before = truth.instance(number);
    let instance = if random.bool() {
        let runs = !before.runs || random.u8(..3) > 0;
        Instance { runs, ..before }
    } else {
        let group = random.usize(..GROUPS.len());
        Instance { group, ..before }
    };
    truth.set_instance(world.server.elapsed(), number, instance);
    world.say(|| format!("instance {number} is {instance:?}"));
}

fn define(world: &World, random: &mut fastrand::Rng) {
    let (group, key) = (random.usize(..GROUPS.len()), KEYS[random.usize(..KEYS.len())]);
    let value = random.bool().then(|| VALUES[random.usize(..VALUES.len())]);
    let mut truth = world.truth.lock().unwrap();
    truth.define(group, key, value);
    world.files.put(&group_file(group), truth.content(group));
    world.say(|| format!("group {group} defines {key} as {value:?}"));
}

fn spoil(world: &World, random: &mut fastrand::Rng) {
    let file = random.usize(..=GROUPS.len());
    let file = if file < GROUPS.len() {
        group_file(file)
    } else {
        CLUSTER_FILE.to_owned()
    };
    let broken = [Broken::Garbage, Broken::Missing, Broken::Away][random.usize(..3)];
    world.files.spoil(&file, broken);
    world.say(|| format!("{file} is broken: {broken:?}"));
}

fn change_cloud(world: &World, random: &mut fastrand::Rng) {
    let mut cloud = world.cloud.lock().unwrap();
    let bad = [Mood::Throttles, Mood::Silent, Mood::Away, Mood::Patchy, Mood::Forgetful];
    cloud.mood = if random.bool() {
        Mood::Well
    } else {
        bad[random.usize(..bad.len())]
    };
    cloud.latency = Duration::from_millis([10, 200, 3000][random.usize(..3)]);
    world.say(|| format!("the cloud is {:?}, {:?}", cloud.mood, cloud.latency));
}
