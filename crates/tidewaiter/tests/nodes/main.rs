//! Installation, upgrade, takeover, faults and logins on real nodes: the image of the binary under test, installed from
//! `deploy/` as an operator installs it. `make nodes` runs them alone.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests"
)]

mod agents;
#[allow(
    clippy::disallowed_methods,
    dead_code,
    reason = "it writes pictures, and the tests of the console use the rest"
)]
#[path = "../console/browser.rs"]
mod browser;
mod faults;
mod install;
mod logins;
mod observer;
mod person;
mod plugin;
mod release;
mod takeover;
mod upgrade;
#[allow(
    clippy::disallowed_methods,
    dead_code,
    reason = "it writes settings, and the tests of the server use the rest"
)]
#[path = "../cloud_server/world.rs"]
mod world;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidewaiter_testkit::site::Site;
use tidewaiter_testkit::{Identity, Images, Process, Program, free_port};
use tokio::sync::OnceCell;

/// The images of the binary under test, built once.
async fn images() -> Arc<Images> {
    static BUILT: OnceCell<Arc<Images>> = OnceCell::const_new();
    let build = async || Arc::new(Images::build(Path::new(env!("CARGO_BIN_EXE_tidewaiter"))).await);
    Arc::clone(BUILT.get_or_init(build).await)
}

/// Two nodes, each of an InstanceGroup.
async fn site(groups: [&str; 2]) -> Site {
    Site::start(images(), &groups).await
}

/// A coordinator as its service account beside the cluster, with these variables. Its own pods have no node.
fn coordinator(site: &Site, variables: &[(&str, &str)]) -> Process {
    let identity = Identity::service_account("containership-core", "tidewaiter-coordinator");
    let free = || format!("127.0.0.1:{}", free_port());
    let program = Program::new(site.images.binary())
        .name("coordinator")
        .arg("coordinator")
        .env("TIDEWAITER_KUBECONFIG", site.control_plane.kubeconfig(&identity))
        .env("TIDEWAITER_ADMIN_ADDRESS", free())
        .env("TIDEWAITER_HEALTH_ADDRESS", free());
    let with = |program: Program, (name, value): &(&str, &str)| program.env(*name, *value);
    Process::start(&site.scratch, variables.iter().fold(program, with))
}

#[expect(clippy::disallowed_methods, reason = "how long it takes, for the reader")]
fn now() -> Instant {
    Instant::now()
}

/// For `--nocapture`, and for the report of a failed test.
fn took(what: &str, since: Instant) {
    println!("{what}: {:.1} s", since.elapsed().as_secs_f64());
}

fn shown(error: impl Debug) -> String {
    format!("{error:?}")
}
