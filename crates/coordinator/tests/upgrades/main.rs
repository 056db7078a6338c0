//! The upgrade controller in this process, as the service account and with the role of `deploy/coordinator`, on a real
//! API server. Its nodes are objects: what kubelets and the scripts of upgrades do is played.
//!
//! What a test looks at is what a plain client reads, and the audit log.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "the other tests of this crate use the rest")]
#[path = "../shared/cluster.rs"]
mod cluster;
mod crashes;
mod drains;
mod ends;
mod forecast;
mod holds;
mod lives;
mod orders;
mod others;
mod outcomes;
mod several;
mod world;
