//! The controller role as a process, on a real API server.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]
#![allow(clippy::float_cmp, reason = "a metric that counts is a whole number")]

mod clouds;
mod config_file;
mod crashes;
mod election;
mod explain;
mod foreign;
mod group_change;
mod health;
mod kills;
mod labels;
mod log;
mod names;
mod quarantine;
mod recreated;
mod relist;
mod replicas;
mod restored;
mod state_store;
mod tags;
mod takeover;
mod traces;
mod undecodable;
mod watches;
mod world;
