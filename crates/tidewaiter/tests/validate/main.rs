//! `tidewaiter validate`, as a person or a pipeline runs it: the process, its exit code, its two outputs.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod away;
mod input;
mod proxies;
mod ready;
mod terminal;
mod verdicts;
mod waiting;
mod world;
