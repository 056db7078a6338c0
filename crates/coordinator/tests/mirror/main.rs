//! The mirror of the cloud: what a plain client reads while a scripted cloud answers well and badly.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod responses;
mod rows;
mod script;
mod stream;
mod world;
