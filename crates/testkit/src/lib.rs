//! The test bed: a real Kubernetes control plane, a proxy that injects faults in front of it, and objects as real
//! clusters hold them.
//!
//! For tests, benches and the demo only. What fails in here is the test's failure, so it panics, and says what it
//! awaited and saw.
//!
//! Nothing that a test starts outlives it: not when its value is dropped, not after a panic, not when the whole test
//! process is killed with SIGKILL ([`Scratch`] says how).
#![allow(
    clippy::expect_used,
    clippy::missing_panics_doc,
    clippy::panic,
    clippy::unwrap_used,
    reason = "what fails in here is the test's failure"
)]

mod api_proxy;
pub mod assets;
pub mod builders;
pub mod command;
mod connect_proxy;
mod control_plane;
mod eventually;
mod fake_cloud;
pub mod fake_ec2;
pub mod fake_gce;
pub mod fake_gcs_server;
pub mod fake_hetzner;
mod fake_registries;
pub mod images;
pub mod issuer;
mod kubeconfig;
mod kubelet;
pub mod leaks;
pub mod moto;
pub mod oidc_provider;
mod port;
mod postgres;
mod process;
pub mod prometheus;
mod real_node;
mod sample;
pub mod schemathesis;
mod scratch;
mod server;
pub mod sim;
pub mod site;
mod terminal;
pub mod usage;
pub mod yaml_oracle;

pub use api_proxy::{Action, ApiProxy, ApiRequest, Gate, Moment, Recorded};
pub use connect_proxy::ConnectProxy;
pub use control_plane::{Audit, AuditEntry, AuditMark, ControlPlane, ControlPlaneBuilder, Identity, Reused};
pub use eventually::{eventually, settled, throughout};
pub use fake_cloud::{Call, FakeCloud, Protocol, Scripted, TokenBucket};
pub use fake_ec2::FakeEc2;
pub use fake_gce::FakeGce;
pub use fake_gcs_server::FakeGcsServer;
pub use fake_hetzner::FakeHetzner;
pub use fake_registries::FakeRegistries;
pub use images::Images;
pub use kubelet::Kubelet;
pub use moto::Moto;
pub use oidc_provider::OidcProvider;
pub use port::free_port;
pub use postgres::Postgres;
pub use process::{Process, Program};
pub use prometheus::Prometheus;
pub use real_node::{AUTHORIZED_KEYS, Image, KubeletVersion, NodeOptions, RealNode, Registry, Unit};
pub use sample::every;
pub use schemathesis::Schemathesis;
pub use scratch::Scratch;
pub use terminal::Terminal;
