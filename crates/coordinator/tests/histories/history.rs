//! The random events in a world, one after another.

use std::time::Duration;

use serde_json::{Value, json};
use tidewaiter_testkit::sim::Faults;

use crate::cloud::{BAD, Mood};
use crate::events::{ANNOUNCES, Announces};
use crate::invariants::OF_A_PERSON;
use crate::objects::{KINDS, Kind};
use crate::replica::{away, disturb};
use crate::settled::intruder;
use crate::truth::{NODES, OBJECTS, node_name};
use crate::world::{World, namespace, sleep};

/// The length of a history.
const LENGTH: Duration = Duration::from_mins(4);
const STEPS: u64 = 40;

/// Runs a history.
pub async fn play(world: &World, random: &mut fastrand::Rng) {
    for number in 0..NODES {
        if random.bool() {
            world.join(number);
        }
    }
    for kind in KINDS {
        for number in 0..random.usize(..=OBJECTS) {
            world.set(kind, number, Some(1));
        }
    }
    if random.bool() {
        world.server.set_faults(Faults::drawn(random));
    }
    let longest = u64::try_from(LENGTH.as_millis()).unwrap() / STEPS * 2;
    let end = world.server.elapsed() + LENGTH;
    while world.server.elapsed() < end {
        step(world, random);
        // Some events are almost simultaneous.
        let pause = if random.u8(..3) > 0 {
            random.u64(..longest) * 3 / 2
        } else {
            random.u64(..20)
        };
        sleep(Duration::from_millis(pause)).await;
    }
}

/// Ends all faults.
pub fn calm(world: &World) {
    world.say(|| "all is well from now on".to_owned());
    world.server.set_faults(Faults::none());
    world.server.set_away(false);
    for (resource, _) in KINDS.iter().flat_map(|kind| kind.resources()) {
        world.server.set_rejected(resource, false);
    }
    world.cloud.lock().mood = Mood::Well;
    world.cloud.lock().latency = Duration::from_millis(20);
    world.cloud.announce(Announces::Well);
}

fn step(world: &World, random: &mut fastrand::Rng) {
    let kind = KINDS[random.usize(..KINDS.len())];
    let number = random.usize(..OBJECTS);
    match random.u32(..100) {
        0..24 => {
            let value = (random.u8(..3) > 0).then(|| random.usize(1..5));
            world.set(kind, number, value);
        }
        24..28 => {
            world.say(|| format!("the cloud loses all of {kind:?}"));
            for number in 0..OBJECTS {
                world.set(kind, number, None);
            }
        }
        28..34 => {
            let node = random.usize(..NODES);
            let is_in = random.bool();
            world.say(|| format!("the cloud: node {node} in the pool: {is_in}"));
            world.cloud.change("nodes", |truth| {
                truth.set_in_pool(node, is_in);
                true
            });
        }
        34..52 => person(world, kind, number, random),
        52..58 => node(world, random),
        58..66 => {
            let mut cloud = world.cloud.lock();
            cloud.mood = match random.u8(..4) {
                0 => Mood::Patchy,
                1 => BAD[random.usize(..BAD.len())],
                _ => Mood::Well,
            };
            cloud.latency = Duration::from_millis([5, 200, 3000][random.usize(..3)]);
            world.say(|| format!("the cloud is {:?}, {:?}", cloud.mood, cloud.latency));
        }
        66..73 => {
            let announces = ANNOUNCES[random.usize(..ANNOUNCES.len())];
            world.say(|| format!("the cloud announces {announces:?}"));
            world.cloud.announce(announces);
        }
        73..76 => {
            let faults = Faults::drawn(random);
            world.say(|| format!("{faults:?}"));
            world.server.set_faults(faults);
        }
        76..80 => away(&world.server, random, |what| world.say(|| what)),
        80..82 => world.server.compact(),
        82..83 => world.server.break_watches(),
        83..86 => {
            let (resource, _) = kind.resources()[0];
            let is_rejected = random.bool();
            world.say(|| format!("an admission policy rejects {resource}: {is_rejected}"));
            world.server.set_rejected(resource, is_rejected);
        }
        _ => {
            let replicas = world.replicas.lock().unwrap().clone();
            disturb(&replicas, 6, random, |what| world.say(|| what));
        }
    }
}

/// A person acts in the cluster.
fn person(world: &World, kind: Kind, number: usize, random: &mut fastrand::Rng) {
    let resources = kind.resources();
    let (resource, api_version) = resources[random.usize(..resources.len())];
    let (name, namespace) = (Kind::name(resource, number), namespace(resource));
    match random.u8(..8) {
        0..3 => {
            if world.server.delete("person", resource, namespace, &name) {
                world.say(|| format!("somebody deletes {resource} {name}"));
            }
        }
        3..5 => {
            let edit = |object: &mut Value| spoil(resource, object);
            if world.server.edit("person", resource, namespace, &name, edit) {
                world.say(|| format!("somebody edits {resource} {name}"));
            }
        }
        5 => {
            // What nobody else may create there is removed; an upgrade of a person is left alone.
            let is_upgrade = kind == Kind::Upgrade;
            let name = if is_upgrade {
                format!("{OF_A_PERSON}-{number}")
            } else {
                intruder(number)
            };
            if resource == "secrets" {
                return;
            }
            let mut object = json!({"apiVersion": api_version, "kind": kind_of(resource), "metadata": {"name": name}, "spec": spec(resource, &name)});
            if !namespace.is_empty() {
                object["metadata"]["namespace"] = namespace.into();
            }
            if world.server.create("person", &object) {
                world.say(|| format!("somebody creates {resource} {name}"));
            }
        }
        6 => {
            let release = json!("0123456789ab");
            let annotate =
                |sync: &mut Value| sync["metadata"]["annotations"]["tidewaiter.dev/release"] = release.clone();
            if world.server.edit("person", "cloudsyncs", "", "cloud", annotate) {
                world.say(|| "somebody releases a revision".to_owned());
            }
        }
        _ => {
            if world.server.delete("person", "cloudsyncs", "", "cloud") {
                world.say(|| "somebody deletes CloudSync".to_owned());
            }
        }
    }
}

fn kind_of(resource: &str) -> &'static str {
    match resource {
        "users" => "User",
        "registries" => "Registry",
        "plugins" => "Plugin",
        "clusterlabels" => "ClusterLabel",
        "nodepoollabels" => "NodePoolLabel",
        "authorizationroles" => "AuthorizationRole",
        "authorizationrolebindings" => "AuthorizationRoleBinding",
        "autoscalingpolicies" => "AutoscalingPolicy",
        "autoscalinggroups" => "AutoscalingGroup",
        _ => "ClusterUpgrade",
    }
}

/// The least that a resource needs in order to be read.
fn spec(resource: &str, name: &str) -> Value {
    match resource {
        "clusterupgrades" => {
            json!({"id": name, "type": "kubernetes", "targetVersion": "v1.30.1", "description": "mine"})
        }
        "clusterlabels" => json!({"id": name, "key": "cluster.containership.io/theirs", "value": "x"}),
        "nodepoollabels" => {
            json!({"id": name, "key": "nodepool.containership.io/theirs", "value": "x", "node_pool_id": crate::objects::POOL})
        }
        "authorizationrolebindings" => {
            json!({"id": name, "type": "UserBinding", "user_id": name, "authorization_role_id": name})
        }
        "autoscalinggroups" => {
            json!({"nodeSelector": {}, "policies": [], "engine": "", "cooldownPeriod": 0, "minNodes": 0, "maxNodes": 1, "suspended": false})
        }
        "autoscalingpolicies" => {
            json!({"metricsBackend": "", "metric": "", "metricConfiguration": {}, "pollInterval": 1, "samplePeriod": 1, "scalingPolicy": {}})
        }
        _ => json!({"id": name}),
    }
}

/// Somebody changes what the mirror wrote.
fn spoil(resource: &str, object: &mut Value) {
    match resource {
        "secrets" => object["data"]["credentials.json"] = json!("e30="),
        "autoscalinggroups" => object["spec"]["maxNodes"] = json!(99),
        "autoscalingpolicies" => object["spec"]["metric"] = json!("theirs"),
        "authorizationrolebindings" => object["spec"]["namespace"] = json!("theirs"),
        "clusterlabels" | "nodepoollabels" => object["spec"]["value"] = json!("theirs"),
        "users" => object["spec"]["name"] = json!("theirs"),
        _ => object["spec"]["description"] = json!("theirs"),
    }
}

fn node(world: &World, random: &mut fastrand::Rng) {
    let number = random.usize(..NODES);
    let name = node_name(number);
    match random.u8(..4) {
        0 => {
            if world.server.delete("person", "nodes", "", &name) {
                world.say(|| format!("node {number} goes"));
            }
        }
        1 => world.join(number),
        _ => {
            let prefix = ["cluster", "nodepool"][random.usize(..2)];
            let key = format!("{prefix}.containership.io/k{}", random.usize(..OBJECTS));
            let edit = |node: &mut Value| node["metadata"]["labels"][&key] = json!("theirs");
            if world.server.edit("kubelet", "nodes", "", &name, edit) {
                world.say(|| format!("node {number}: its kubelet sets {key}"));
            }
        }
    }
}
