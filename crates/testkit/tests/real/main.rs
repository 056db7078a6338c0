//! The test bed itself, on real processes and a real API server.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

use std::time::Duration;

mod api_proxy;
mod audit;
mod cleanup;
mod control_plane;
mod manifests;
mod postgres;
mod reused;
mod schemathesis;

/// For what takes milliseconds on an idle machine.
const SOON: Duration = Duration::from_mins(3);
