//! Killed at each of its writes, the coordinator ends where it ends without that, and is quiet then.

use std::time::Duration;

use serde_json::json;
use tidewaiter_coordinator::mirror::MassDeletion;
use tidewaiter_testkit::every;
use tidewaiter_testkit::sim::Crash;

use crate::away::{synced, synced_with};
use crate::objects::Kind;
use crate::replica::simulated;
use crate::settled::{check, check_quiet};
use crate::world::{World, sleep};

/// Longer than a Lease, and than the confirmation of a mass deletion.
const SETTLES: Duration = Duration::from_mins(3);

/// After the death only what the server has matters: it has the same before the next write as after the last one, but
/// for what is on its way. So the leader is killed before each write, and after every third one.
const AFTER: usize = 3;

/// Kills the leader at its writes until a run has no such write: at each one, or at some of many.
fn at_writes(objects: &[(usize, usize)], step: usize, change: &impl AsyncFn(&World), least: usize) {
    for (crash, step) in [
        (Crash::Before as fn(usize) -> Crash, step),
        (Crash::After, step * AFTER),
    ] {
        let mut writes = 0;
        while simulated(4, killed(objects, crash(writes), change)) {
            writes += step;
        }
        assert!(writes >= least, "{:?} is the last of its writes", crash(writes));
    }
}

/// Says whether there was such a write within the time of the change.
async fn killed(objects: &[(usize, usize)], crash: Crash, change: &impl AsyncFn(&World)) -> bool {
    let world = synced(objects, 1).await;
    let leader = world.leader().unwrap();
    leader.process.kill_at(crash);
    change(&world).await;
    let is_dead = leader.process.is_dead();
    leader.process.kill();
    world.settles(SETTLES).await;
    check(&world);
    check_quiet(&world, Duration::from_mins(3)).await;
    // Nor does the next one write anything.
    world.leader().unwrap().process.kill();
    sleep(Duration::from_mins(1)).await;
    check_quiet(&world, Duration::from_mins(1)).await;
    check(&world);
    assert_eq!(world.invariants.violations(), [""; 0], "{crash:?}");
    is_dead
}

#[test]
fn killed_at_any_creation_update_or_deletion() {
    let change = async |world: &World| {
        world.set_all(&[(1, 2), (2, 1)]);
        sleep(Duration::from_secs(10)).await;
    };
    // Three for each of eleven kinds, and an Event for each.
    at_writes(&[(0, 1), (1, 1)], every(5), &change, 66);
}

#[test]
fn killed_in_a_mass_deletion() {
    let change = async |world: &World| {
        world.set_all(&[]);
        world.settles(Duration::from_secs(50)).await;
    };
    let objects = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)];
    at_writes(&objects, every(3) * 7, &change, 66);
}

#[test]
fn killed_at_any_write_of_a_release() {
    let change = async |world: &World| {
        for number in 0..6 {
            world.set(Kind::User, number, None);
        }
        let is_held = |world: &World| world.condition("Held") == "True DeletionsHeld";
        // Killed before it says so, it says so when it leads again.
        world.until("held", Duration::from_mins(1), is_held).await;
        let revision = world.resources("cloudsyncs")[0]["status"]["kinds"]
            .as_array()
            .and_then(|kinds| kinds.iter().find_map(|kind| kind["held"]["revision"].as_str()))
            .map(ToOwned::to_owned)
            .unwrap();
        let annotate = |sync: &mut serde_json::Value| {
            sync["metadata"]["annotations"] = json!({"tidewaiter.dev/release": revision});
        };
        assert!(world.server.edit("person", "cloudsyncs", "", "cloud", annotate));
        sleep(Duration::from_secs(10)).await;
    };
    for (crash, step) in [(Crash::Before as fn(usize) -> Crash, 1), (Crash::After, AFTER)] {
        for writes in (0..24).step_by(step * every(4)) {
            simulated(5, killed_at_release(crash(writes), &change));
        }
    }
}

async fn killed_at_release(crash: Crash, change: &impl AsyncFn(&World)) {
    let objects = [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1), (5, 1)];
    let world = synced_with(MassDeletion::Release, &objects, 1).await;
    world.leader().unwrap().process.kill_at(crash);
    change(&world).await;
    sleep(SETTLES).await;
    check(&world);
    check_quiet(&world, Duration::from_mins(3)).await;
    assert_eq!(world.invariants.violations(), [""; 0], "{crash:?}");
}
