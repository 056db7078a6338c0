//! The cloud's server as its operator runs it: the real binary, on both databases.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "tests"
)]
#![allow(
    clippy::disallowed_methods,
    reason = "writers are tasks, and how long a restart takes is real time"
)]

mod acme;
mod attacked;
mod attackers;
mod copies;
mod crashes;
mod deploy;
mod full_disk;
mod interrupted;
mod keys;
mod ledger;
mod monitoring;
mod nginx;
mod progress;
mod proxies;
#[path = "../../../cloud/tests/server/proxy.rs"]
mod proxy;
mod read_only;
mod refusals;
mod secrets;
mod sign_in;
mod starts;
mod unit;
mod world;
