//! The controllers of RBAC in this process, as the service account and with the role of `deploy/coordinator`, on a real
//! API server, which also says who may do what (`SubjectAccessReview`).
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod agreement;
mod attack;
mod cloud;
#[allow(dead_code, reason = "the other tests of this crate use the rest")]
#[path = "../shared/cluster.rs"]
mod cluster;
mod crashes;
mod ends;
mod forged;
mod limits;
#[allow(dead_code, reason = "the mirror's own tests use more of it")]
#[path = "../mirror/objects.rs"]
mod objects;
mod rows;
mod scopes;
#[allow(dead_code, unused_imports, reason = "the mirror's own tests use more of it")]
#[path = "../mirror/script.rs"]
mod script;
mod takeover;
mod tenant;
mod world;
