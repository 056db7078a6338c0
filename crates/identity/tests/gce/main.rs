//! The GCE provider through the real client, against a fake of our own that words its answers as Compute Engine does.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod as_kops;
#[path = "../shared/ask.rs"]
mod ask;
mod chain;
mod cost;
mod groups;
mod setup;
#[path = "../shared/told.rs"]
mod told;
mod trouble;
mod zones;
