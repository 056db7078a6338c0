//! `tidewaiter cloud` and `tidewaiter credential`, as a person or kubectl runs them: the process, its files, its
//! outputs, and what the cloud was asked.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "tests")]

mod actions;
mod apply;
mod attach;
mod catalogue;
mod completion;
mod contexts;
mod credential;
mod documented;
mod help;
mod impact;
mod invitations;
mod objects;
mod offboard;
mod prune;
mod real;
mod sign;
mod sign_in;
mod terminal;
mod world;
