//! Kubelets that change their Nodes many times a second: the controller writes seldom for these Nodes and as ever for
//! the others, and what it writes last is true.

use std::time::Duration;

use serde_json::{Value, json};
use tidewaiter_testkit::sim::Write;

use crate::history::addresses;
use crate::invariants::{REPLICA, condition, labels};
use crate::replica::simulated;
use crate::settled::check;
use crate::truth::{INSTANCES, KEYS, MISSING, node_name, provider_id};
use crate::world::{World, sleep};

/// The Nodes that flip their addresses: the first ones.
const FLIPPING: usize = 8;
/// Ten times a second for a minute.
const FLIPS: usize = 600;
const INTERVAL: Duration = Duration::from_millis(100);
/// In this time a single change is carried out.
const SOON: Duration = Duration::from_secs(2);
/// Twenty passes at once and one in ten seconds: for each Node, in a minute and until the last state is written.
const MOST: usize = FLIPPING * (20 + 6 + 2);

#[test]
fn kubelets_that_flip_their_addresses_cause_few_writes_and_delay_nobody() {
    simulated(0, flood());
}

async fn flood() {
    let mut random = fastrand::Rng::with_seed(0);
    let world = World::new(&mut random, false);
    drop(world.keep(random.fork()));
    // One Node registers during the flood.
    let (late, quiet) = (INSTANCES - 1, INSTANCES - 2);
    for number in 0..late {
        register(&world, number);
    }
    sleep(Duration::from_mins(1)).await;
    check(&world);

    let before = world.server.writes().len();
    for flip in 0..FLIPS {
        for number in 0..FLIPPING {
            // In the end, half of them lie.
            let lies = (flip + number).is_multiple_of(2);
            let change =
                |node: &mut Value| node["status"]["addresses"] = addresses(if lies { MISSING } else { number });
            assert!(world.server.edit("kubelet", "nodes", "", &node_name(number), change));
        }
        if flip == FLIPS / 3 {
            register(&world, late);
        }
        if flip.is_multiple_of(FLIPS / 4) {
            let strip = |node: &mut Value| drop(node["metadata"]["labels"].as_object_mut().unwrap().remove(KEYS[0]));
            assert!(world.server.edit("person", "nodes", "", &node_name(quiet), strip));
        }
        sleep(INTERVAL).await;
        let since = |first: usize| {
            flip.checked_sub(first)
                .map(|flips| INTERVAL * u32::try_from(flips + 1).unwrap())
        };
        if since(FLIPS / 3).is_some_and(|time| time >= SOON) {
            assert!(is_labelled(&world, late), "the new Node waits at flip {flip}");
        }
        if since(flip - flip % (FLIPS / 4)).is_some_and(|time| time >= SOON) {
            assert!(is_labelled(&world, quiet), "the other Node waits at flip {flip}");
        }
    }
    let of_flipping = |write: &&Write| {
        let about = matches!(write.resource.as_str(), "nodes" | "nodeidentities");
        about && write.by.starts_with(REPLICA) && (0..FLIPPING).any(|number| node_name(number) == write.name)
    };
    let writes = || world.server.writes()[before..].iter().filter(of_flipping).count();
    sleep(Duration::from_secs(11)).await;
    let written = writes();
    assert!(written <= MOST, "{written} writes");
    assert!(written >= FLIPPING * 20, "the flood has not come: {written} writes");

    for number in 0..FLIPPING {
        let lies = (FLIPS - 1 + number).is_multiple_of(2);
        let expected = if lies { "AddressMismatch" } else { "Proven" };
        assert_eq!(reason(&world, number), expected, "node {number}");
    }
    sleep(Duration::from_mins(5)).await;
    assert_eq!(writes(), written, "what is written last is true");
    check(&world);
    let violations = world.invariants.seen.lock().unwrap().violations.clone();
    assert!(violations.is_empty(), "{violations:?}");
}

fn register(world: &World, number: usize) {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name(number), "labels": {}},
        "spec": {"providerID": provider_id(number)}, "status": {"addresses": addresses(number)},
    });
    assert!(world.server.create("kubelet", &node));
}

fn is_labelled(world: &World, number: usize) -> bool {
    world.server.read(|objects| {
        let node = objects.get("nodes", "", &node_name(number)).unwrap();
        labels(node).contains_key(KEYS[0])
    })
}

/// The reason in the Node's record.
fn reason(world: &World, number: usize) -> String {
    world.server.read(|objects| {
        let record = objects.get("nodeidentities", "", &node_name(number)).unwrap();
        condition(record, "Verified")["reason"].as_str().unwrap().to_owned()
    })
}
