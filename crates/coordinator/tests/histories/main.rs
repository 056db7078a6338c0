//! The mirror and the controllers of the labels of Nodes in simulated time, against a simulated API server and a
//! simulated cloud: random histories, chosen by seeds, and scenes. A seed repeats its history but for the order in
//! which the loops of a new leader begin, which tokio draws: its `watch` channel wakes many receivers in an order of
//! its own.
//!
//! ```text
//! TIDEWAITER_SIM_SEED=7 cargo test --workspace --test histories every_history -- --nocapture  # one, traced
//! TIDEWAITER_SIM_SEEDS=0..100000 cargo test --workspace --test histories every_history  # many
//! ```
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests"
)]

mod away;
mod cloud;
mod crashes;
mod deletions;
mod events;
mod failover;
mod history;
mod invariants;
#[path = "../mirror/objects.rs"]
mod objects;
#[path = "../../../kit/tests/shared/replica.rs"]
mod replica;
mod role;
mod settled;
mod truth;
mod world;

use std::time::Duration;

use tidewaiter_testkit::sim::Seeds;

use history::{calm, play};
use replica::simulated;
use settled::{check, check_quiet};
use world::World;

/// Longer than any retry, any silent watch, and the pause after a cloud without a change stream.
const SETTLES: Duration = Duration::from_mins(15);

/// Plays the history of a seed, and says what was violated.
async fn simulate(seed: u64, traces: bool) -> Vec<String> {
    let mut random = fastrand::Rng::with_seed(seed);
    let world = World::new(&mut random, traces);
    for _ in 0..random.u8(1..=2) {
        drop(world.keep(random.fork()));
    }
    play(&world, &mut random).await;
    calm(&world);
    // What the cloud deletes of most objects, a person must release.
    world.settles(SETTLES).await;
    check(&world);
    check_quiet(&world, Duration::from_mins(5)).await;
    check(&world);
    world.invariants.violations()
}

#[test]
fn every_history_ends_as_the_cloud_says_and_is_then_quiet() {
    let seeds = Seeds::chosen(0..10);
    seeds.run("--test histories every_history", |seed, traces| {
        simulated(seed, simulate(seed, traces))
    });
}
