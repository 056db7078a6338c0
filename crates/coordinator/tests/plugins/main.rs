//! Plugins of the cloud on a real API server, as the coordinator's own service account, beside a scripted cloud.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests"
)]

mod adoption;
mod answers;
mod approval;
#[allow(dead_code, reason = "the other tests of this crate use the rest")]
#[path = "../shared/cluster.rs"]
mod cluster;
mod copies;
mod crashes;
mod definitions;
mod depends;
mod guards;
mod hostile;
mod jobs;
mod lives;
mod many;
#[path = "../mirror/objects.rs"]
#[allow(dead_code, reason = "the objects of other kinds are for the tests of the mirror")]
mod objects;
mod offline;
mod others;
mod pairs;
mod pods;
mod popular;
mod races;
mod random;
mod removal;
mod rendering;
mod rollback;
mod scopes;
#[path = "../mirror/script.rs"]
#[allow(
    dead_code,
    reason = "the ways in which a cloud fails are for the tests of the mirror"
)]
mod script;
mod shapes;
mod stored;
mod tenant;
mod trust;
mod world;
