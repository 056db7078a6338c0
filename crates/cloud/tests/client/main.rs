//! The client against a server that answers byte for byte what the test says: every fault, every wait, the stream.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod answers;
mod clock;
mod retries;
mod settings;
mod stream;
mod tls;
mod world;
