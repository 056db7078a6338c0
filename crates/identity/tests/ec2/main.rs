//! The EC2 provider through the real SDK: against a fake of our own, for every fault, and against moto, which others
//! wrote.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod as_kops;
#[path = "../shared/ask.rs"]
mod ask;
mod fake;
mod groups;
mod groups_moto;
mod moto;
mod setup;
#[path = "../shared/told.rs"]
mod told;
