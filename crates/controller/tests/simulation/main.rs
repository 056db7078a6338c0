//! The controller role in simulated time, against a simulated API server, cloud and state store: random histories, each
//! repeatable by its seed.
//!
//! ```text
//! # one seed, with all that happens in it
//! TIDEWAITER_SIM_SEED=7 cargo test --workspace --test simulation whatever -- --nocapture
//! # many seeds
//! TIDEWAITER_SIM_SEEDS=0..1000000 cargo test --workspace --test simulation whatever
//! ```

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests"
)]

mod cloud;
mod files;
mod flood;
mod history;
mod invariants;
#[path = "../../../kit/tests/shared/replica.rs"]
mod replica;
mod role;
mod settled;
mod truth;
mod world;

use std::time::Duration;

use tidewaiter_testkit::sim::{ApiServer, Seeds};

use history::{calm, play};
use replica::simulated;
use settled::{SETTLES, SETTLES_LATE, check, check_quiet};
use world::{World, sleep};

/// The result of a seed.
struct Outcome {
    server: ApiServer,
    violations: Vec<String>,
}

/// Runs one seed on this thread.
fn play_seed(seed: u64, traces: bool) -> Outcome {
    simulated(seed, simulate(seed, traces))
}

/// Runs the history of a seed.
async fn simulate(seed: u64, traces: bool) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(&mut random, traces);
    let replicas = random.u8(1..=2);
    for _ in 0..replicas {
        drop(world.keep(random.fork()));
    }
    play(&world, &mut random).await;
    calm(&world);
    // The slowest checks run only for some seeds: two replicas at rest, silent watches that are not closed, and a whole
    // hour.
    if !seed.is_multiple_of(8) {
        world.retire();
    }
    if seed.is_multiple_of(4) {
        sleep(SETTLES_LATE).await;
    } else {
        world.server.break_watches();
        sleep(SETTLES).await;
    }
    check(&world);
    let quiet = if seed.is_multiple_of(64) { 60 } else { 2 };
    check_quiet(&world, Duration::from_mins(quiet)).await;
    check(&world);
    let violations = world.invariants.seen.lock().unwrap().violations.clone();
    Outcome {
        server: world.server,
        violations,
    }
}

#[test]
fn whatever_happens_it_ends_as_the_cloud_and_the_files_say() {
    let seeds = Seeds::chosen(0..400);
    seeds.run("--test simulation whatever", |seed, traces| {
        play_seed(seed, traces).violations
    });
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for seed in 0..5 {
        let [one, two] = [(); 2].map(|()| play_seed(seed, false).server.log());
        let differs = one.lines().zip(two.lines()).position(|(one, two)| one != two);
        let shown = |log: &str| {
            log.lines()
                .nth(differs.unwrap_or_default())
                .unwrap_or_default()
                .to_owned()
        };
        assert!(one == two, "seed {seed}:\n{}\n{}", shown(&one), shown(&two));
    }
}
