//! `tidewaiter explain`, as a person runs it.
#![allow(clippy::unwrap_used, reason = "tests")]

mod contexts;
mod group;
