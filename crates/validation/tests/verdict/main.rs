//! The verdict from observations as files hold them: kOps' own, and what `kubectl get -o yaml` prints.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod cases;
mod fixture;
mod golden;
mod order;
