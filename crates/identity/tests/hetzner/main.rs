//! Cases that only Hetzner Cloud has, through the real client, from a fake of our own that words its answers as the API
//! does. The tests of every provider are in `../conformance`.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

#[path = "../shared/ask.rs"]
mod ask;
mod groups;
mod listing;
mod server;
mod setup;
#[path = "../shared/told.rs"]
mod told;
mod trouble;
