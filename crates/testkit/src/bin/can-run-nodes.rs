//! Checks that this machine can run real nodes. If it cannot, prints what it lacks and fails; `make test` leaves out
//! the tests that need them.
#![allow(clippy::print_stdout, reason = "a program for scripts")]

use std::process::ExitCode;

use tidewaiter_testkit::RealNode;

fn main() -> ExitCode {
    match RealNode::missing() {
        None => ExitCode::SUCCESS,
        Some(missing) => {
            println!("this machine runs no real nodes, which need {missing}");
            ExitCode::FAILURE
        }
    }
}
