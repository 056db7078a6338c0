//! The cloud is away for an hour: nothing changes, that is visible, requests are bounded, and it is caught up within a
//! round.

use std::time::Duration;

use serde_json::Value;
use tidewaiter_coordinator::mirror::MassDeletion;

use crate::cloud::{BAD, Mood, RETRY_AFTER};
use crate::events::Announces;
use crate::invariants::REPLICA;
use crate::objects::{KINDS, Kind};
use crate::replica::simulated;
use crate::role::INTERVAL;
use crate::settled::{check, differences};
use crate::truth::NODES;
use crate::world::{World, sleep};

const HOUR: Duration = Duration::from_hours(1);

/// The names of the loops, as readiness and metrics show them.
const LOOPS: [&str; 11] = [
    "users",
    "registries",
    "registry-credentials",
    "plugins",
    "cluster-labels",
    "node-pool-labels",
    "roles",
    "role-bindings",
    "autoscaling-policies",
    "autoscaling-groups",
    "upgrades",
];

/// The delays double, and the longest is between half of the sync interval and all of it: for each of the two kinds
/// that a list is for, at most one request in fifteen seconds, and those of the beginning.
const MOST_REQUESTS: usize = 2 * (240 + MOST_AT_FIRST);

/// Within the first sync interval without an answer, for one kind.
const MOST_AT_FIRST: usize = 10;

/// One write for each rest in trouble, and one for each condition that changes.
const MOST_STATUSES: usize = 3_600 / 15 + 20;

/// The time within which everything that waits for the cloud follows the first response.
const AT_ONCE: Duration = Duration::from_secs(3);

/// A world that has these objects of all kinds, and replicas of which one has mirrored them.
pub async fn synced(objects: &[(usize, usize)], replicas: usize) -> World {
    synced_with(MassDeletion::Confirm, objects, replicas).await
}

/// The same with another rule for mass deletions.
pub async fn synced_with(mass_deletion: MassDeletion, objects: &[(usize, usize)], replicas: usize) -> World {
    let mut random = fastrand::Rng::with_seed(1);
    let mut world = World::new(&mut random, false);
    world.mass_deletion = mass_deletion;
    for number in 0..NODES {
        world.join(number);
    }
    world.cloud.change("nodes", |truth| {
        truth.set_in_pool(0, true);
        true
    });
    world.set_all(objects);
    for _ in 0..replicas {
        drop(world.keep(random.fork()));
    }
    world.until("mirrored", Duration::from_mins(2), is_settled).await;
    world
}

pub fn is_settled(world: &World) -> bool {
    world.condition("Synced") == "True Applied" && differences(world).is_empty()
}

fn is_streaming(world: &World) -> bool {
    let leader = world.leader().unwrap();
    let metrics = leader.kit.get().unwrap().metrics.encode().unwrap();
    metrics.contains("tidewaiter_cloud_stream_connected 1")
}

fn is_ready(world: &World) -> bool {
    let leader = world.leader().unwrap();
    leader.kit.get().unwrap().checks.report().0
}

/// Every mirrored object and every Node.
fn everything(world: &World) -> Vec<Value> {
    let resources = KINDS.iter().flat_map(|kind| kind.resources());
    let resources = resources.map(|(resource, _)| *resource).chain(["nodes"]);
    resources.flat_map(|resource| world.resources(resource)).collect()
}

#[test]
fn an_hour_without_the_cloud_changes_nothing_is_visible_and_is_caught_up() {
    for mood in BAD {
        simulated(1, an_hour(mood));
    }
}

async fn an_hour(mood: Mood) {
    let world = synced(&[(0, 1), (1, 1), (2, 1)], 1).await;
    let (before, writes) = (everything(&world), world.server.writes().len());
    let (requests, left) = (world.cloud.lock().asked.len(), world.server.elapsed());
    world.cloud.lock().mood = mood;
    world.cloud.interrupt();
    world.set_all(&[(1, 2), (2, 1), (3, 1)]);
    sleep(HOUR).await;

    assert_eq!(everything(&world), before, "{mood:?}");
    let written = world.server.writes().split_off(writes);
    let ours = |resource: &str| {
        written
            .iter()
            .filter(|write| write.by.starts_with(REPLICA) && write.resource == resource)
            .count()
    };
    let others = written.iter().filter(|write| write.resource != "leases").count();
    assert_eq!(others, ours("cloudsyncs") + ours("events"), "{mood:?}");
    let statuses = ours("cloudsyncs");
    // Errors and garbage come in several forms, each with its own message.
    assert!(
        statuses
            <= if [Mood::Garbage, Mood::Errors].contains(&mood) {
                MOST_STATUSES
            } else {
                5
            },
        "{mood:?}: {statuses} writes of CloudSync"
    );
    stale(&world, mood, left);
    bounded(&world, mood, requests);

    world.cloud.lock().mood = Mood::Well;
    let first = world
        .until("a list", INTERVAL * 2, |world| everything(world) != before)
        .await;
    let rest = world.until("caught up", Duration::from_mins(5), is_settled).await;
    // One that was asked for a pause makes it, and one whose request hangs knows nothing yet.
    if ![Mood::Silent, Mood::Throttles].contains(&mood) {
        assert!(
            rest <= AT_ONCE,
            "{mood:?}: the other kinds follow the first one after {rest:?}"
        );
        let streaming = world.until("connected", Duration::from_mins(2), is_streaming).await;
        assert!(streaming <= AT_ONCE, "{mood:?}: the change stream after {streaming:?}");
    }
    let took = first + rest;
    // The attempt that hangs when the cloud comes back ends by its limit; then there is one retry.
    let most = if mood == Mood::Silent {
        INTERVAL * 2
    } else {
        INTERVAL + INTERVAL / 2
    };
    assert!(took <= most, "{mood:?}: caught up after {took:?}");
    check(&world);
    // The list of the nodes has a delay of its own, which nothing above waits for.
    world.until("ready", INTERVAL * 2, is_ready).await;
    assert!(
        world.invariants.violations().is_empty(),
        "{mood:?}: {:?}",
        world.invariants.violations()
    );
}

/// The metric and the condition say that nothing is known since `left`. The replica is ready: no other one could do
/// more, and one that is not ready would keep the others from being drained.
fn stale(world: &World, mood: Mood, left: Duration) {
    assert_eq!(world.condition("Synced"), "False ListFailed", "{mood:?}");
    let replica = world.leader().unwrap();
    let kit = replica.kit.get().unwrap();
    let (is_ready, report) = kit.checks.report();
    assert!(is_ready, "{mood:?}: {report}");
    let metrics = kit.metrics.encode().unwrap();
    for name in LOOPS {
        let series = format!("tidewaiter_cloud_sync_last_success_timestamp_seconds{{kind=\"{name}\"}} ");
        let last = metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap();
        assert!(
            last.parse::<u64>().unwrap() <= left.as_secs(),
            "{mood:?}: {series}{last}"
        );
    }
}

fn bounded(world: &World, mood: Mood, from: usize) {
    let state = world.cloud.lock();
    let of = |path: &str| -> Vec<Duration> {
        let asked = state.asked[from..].iter().filter(|asked| asked.path == path);
        asked.map(|asked| asked.at).collect()
    };
    for kind in KINDS {
        let requests = of(&kind.path()).len();
        assert!(
            requests <= MOST_REQUESTS,
            "{mood:?}: {kind:?} was requested {requests} times"
        );
    }
    // The cloud asked to be left alone for so long. The stream and one request may be under way when it begins.
    let times = of(&Kind::User.path());
    let least = times
        .windows(2)
        .skip(1)
        .map(|pair| pair[1].saturating_sub(pair[0]))
        .min()
        .unwrap();
    assert!(
        mood != Mood::Throttles || least >= Duration::from_secs(RETRY_AFTER),
        "{least:?}"
    );
}

#[test]
fn a_cloud_that_fails_is_asked_with_delays_that_double() {
    for mood in [Mood::Errors, Mood::Refuses] {
        simulated(9, async {
            let world = synced(&[(0, 1)], 1).await;
            let before = world.cloud.lock().asked.len();
            world.cloud.lock().mood = mood;
            world.cloud.interrupt();
            let asked = |world: &World| {
                let state = world.cloud.lock();
                let users = Kind::User.path();
                state.asked[before..].iter().filter(|asked| asked.path == users).count()
            };
            world.until("asked", INTERVAL, |world| asked(world) > 0).await;
            sleep(INTERVAL).await;
            let requests = asked(&world);
            assert!((5..=MOST_AT_FIRST).contains(&requests), "{mood:?}: {requests} requests");
        });
    }
}

#[test]
fn what_changed_during_a_short_outage_arrives_soon_after_it() {
    for seconds in [1, 3, 6, 10] {
        simulated(10, async {
            let world = synced(&[(0, 1)], 1).await;
            world.cloud.lock().mood = Mood::Errors;
            world.cloud.interrupt();
            world.set_all(&[(0, 2), (1, 1)]);
            sleep(Duration::from_secs(seconds)).await;
            world.cloud.lock().mood = Mood::Well;
            let took = world.until("caught up", INTERVAL * 2, is_settled).await;
            assert!(took <= 2 * AT_ONCE, "an outage of {seconds} s: {took:?}");
        });
    }
}

#[test]
fn a_cloud_that_accepts_the_stream_and_sends_nothing_is_polled() {
    for announces in [Announces::Nothing, Announces::Hangs] {
        simulated(2, async {
            let world = synced(&[(0, 1)], 1).await;
            world.cloud.announce(announces);
            // The first connection is known to be silent after 45 s.
            sleep(Duration::from_mins(1)).await;
            let before = world.cloud.lock().asked.len();
            for value in 2..8 {
                world.set(Kind::User, 0, Some(value));
                let took = world.until("mirrored", Duration::from_mins(3), is_settled).await;
                assert!(
                    took <= INTERVAL.mul_f64(1.1) + Duration::from_secs(2),
                    "{announces:?}: {took:?}"
                );
            }
            let passed = world.cloud.lock().asked.len() - before;
            // Fourteen lists and the stream, at most once for each interval.
            assert!(passed <= 16 * 8, "{announces:?}: {passed} requests");
        });
    }
}

#[test]
fn what_one_response_deletes_is_confirmed_after_one_interval() {
    simulated(8, async {
        let all: Vec<(usize, usize)> = (0..7).map(|number| (number, 1)).collect();
        let world = synced(&all, 1).await;
        // All of it goes at once, so there is one response until the next poll.
        let now = world.server.elapsed();
        world.cloud.change("labels", |truth| {
            for number in 0..7 {
                truth.set(now, Kind::ClusterLabel, number, None);
            }
            true
        });
        let took = world.until("deleted", 2 * INTERVAL, is_settled).await;
        assert!(took >= INTERVAL, "{took:?}");
        assert_eq!(world.invariants.violations(), [""; 0]);
    });
}

#[test]
fn all_objects_that_are_gone_for_less_than_an_interval_are_not_deleted() {
    simulated(3, async {
        let all: Vec<(usize, usize)> = (0..7).map(|number| (number, 1)).collect();
        let world = synced(&all, 1).await;
        let before = everything(&world);
        world.set_all(&[]);
        world
            .until("held", INTERVAL, |world| {
                world.condition("Held") == "True DeletionsHeld"
            })
            .await;
        sleep(INTERVAL * 5 / 6).await;
        let gone: Vec<String> = before
            .iter()
            .filter(|object| object["kind"] != "Node" && !everything(&world).contains(object))
            .map(|object| object["metadata"]["name"].to_string())
            // What is held is stored beside the list.
            .filter(|name| !name.contains("tidewaiter-list-"))
            .collect();
        assert!(gone.is_empty(), "{gone:?}");
        world.set_all(&all);
        world.until("mirrored", INTERVAL, is_settled).await;
        check(&world);
        assert_eq!(world.invariants.violations(), [""; 0]);
    });
}
