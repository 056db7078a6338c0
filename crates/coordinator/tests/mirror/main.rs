//! The mirror of the cloud: what a plain client reads while a scripted cloud answers well and badly.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

#[allow(dead_code, reason = "the other tests of this crate use the rest")]
#[path = "../shared/cluster.rs"]
mod cluster;
mod crashes;
mod deletions;
mod objects;
mod permissions;
mod responses;
mod rows;
mod script;
mod stored;
mod strangers;
mod stream;
mod world;
