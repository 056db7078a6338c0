//! Checks the protocol exhaustively. The model calls the functions that run: `step` and the decisions of the agent.
#![allow(clippy::print_stdout, clippy::unwrap_used, reason = "tests")]

mod protocol;
mod state;
mod world;

use std::time::Instant;

use protocol::Protocol;
use stateright::{Checker as _, HasDiscoveries, Model as _};
use world::World;

/// Checks every state, or until a property is violated, and prints how many there are.
#[expect(clippy::disallowed_methods, reason = "the time of the check is printed")]
fn check(name: &str, model: Protocol) {
    let began = Instant::now();
    let checker = model
        .checker()
        .threads(2)
        .finish_when(HasDiscoveries::AnyFailures)
        .spawn_bfs()
        .join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, depth {depth}, {:.1?}", began.elapsed());
    checker.assert_properties();
}

/// The second upgrade multiplies the states, so the agents report nothing here.
#[test]
fn two_upgrades_and_two_coordinators() {
    check(
        "two upgrades",
        Protocol {
            second: true,
            ..Protocol::new(World::new(1, false, false))
        },
    );
}

#[test]
fn two_workers_at_once() {
    check(
        "two workers at once",
        Protocol {
            max_unavailable: 2,
            ..Protocol::new(World::new(2, false, false))
        },
    );
}

#[test]
fn scripts_that_go_on_after_the_kubelet_is_new() {
    check(
        "one upgrade with reports",
        Protocol {
            reports: true,
            ..Protocol::new(World::new(1, true, false))
        },
    );
}

/// A node that dies for good has failed, and with two faults a moment that nobody sees comes with another one.
#[test]
fn kubelets_that_die_after_the_script_has_succeeded() {
    check(
        "one upgrade with a minimum time",
        Protocol {
            reports: true,
            min_ready: true,
            faults: 2,
            ..Protocol::new(World::new(1, true, true))
        },
    );
}

/// The `NodeReport` goes with its Node, and the script runs on.
#[test]
fn nodes_that_register_again_while_their_script_runs() {
    check(
        "nodes that register again",
        Protocol {
            reports: true,
            registers: true,
            faults: 2,
            ..Protocol::new(World::new(1, true, false))
        },
    );
}
