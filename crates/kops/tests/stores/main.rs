//! The state store on servers that others have written, through the real clients and real sockets: one suite for both,
//! and what only Google Cloud Storage has.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod gs;
mod s3;
mod suite;
