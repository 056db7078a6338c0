//! The label controllers in this process, as the service account and with the role of `deploy/coordinator`, on a real
//! API server and with a real cloud.
//!
//! What a test looks at is what a plain client reads, and the audit log.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod attacker;
mod brake;
mod cloud;
#[allow(
    dead_code,
    unused_imports,
    unused_macros,
    reason = "the server's own tests use more of it"
)]
#[path = "../../../cloud/tests/server/world.rs"]
mod cloud_world;
#[allow(dead_code, reason = "the other tests of this crate use the rest")]
#[path = "../shared/cluster.rs"]
mod cluster;
mod exact;
mod world;
