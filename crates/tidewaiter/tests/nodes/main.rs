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
mod faults;
mod install;
mod logins;
mod observer;
mod plugin;
mod release;
mod takeover;
mod upgrade;

use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use tidewaiter_testkit::Images;
use tidewaiter_testkit::site::Site;
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
