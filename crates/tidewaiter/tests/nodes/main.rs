//! Installation, upgrade, takeover and faults on real nodes: the image of the binary under test, installed from `deploy/chart` as
//! an operator installs it. `make nodes` runs them.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests"
)]

mod cloud;
mod faults;
mod install;
mod observer;
mod release;
mod site;
mod takeover;

use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use tidewaiter_testkit::{Image, Scratch};
use tokio::process::Command;
use tokio::sync::OnceCell;

/// For what takes seconds on an idle machine.
const SOON: Duration = Duration::from_mins(4);

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// As in the manifests of `deploy/`.
const REPOSITORY: &str = "registry.invalid/tidewaiter";

/// The images of the binary under test.
struct Images {
    tidewaiter: Image,
    kops_controller: Image,
    _scratch: Scratch,
}

/// Built once.
async fn images() -> &'static Images {
    static BUILT: OnceCell<Images> = OnceCell::const_new();
    BUILT.get_or_init(build).await
}

async fn build() -> Images {
    let scratch = Scratch::new("images");
    // The symbols of a debug binary are hundreds of megabytes. A released one has none.
    let binary = scratch.path().join("binary");
    output(
        Command::new("strip")
            .arg("-o")
            .arg(&binary)
            .arg(env!("CARGO_BIN_EXE_tidewaiter")),
    )
    .await;
    let folder = scratch.path().join("dist");
    let mut build = Command::new(repository().join("hack/image/build"));
    let printed = output(build.args([&binary, &folder]).env("COMPRESSION_LEVEL", "1")).await;
    let base = Path::new(printed.lines().last().unwrap());
    let suffix = base
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .strip_prefix("tidewaiter")
        .unwrap();
    let image = |name: &str| {
        let archive = base.with_file_name(format!("{name}{suffix}.tar"));
        Image::open(archive, format!("registry.invalid/{name}:{VERSION}"))
    };
    Images {
        tidewaiter: image("tidewaiter"),
        kops_controller: image("kops-controller"),
        _scratch: scratch,
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// What a command prints; it succeeds.
async fn output(command: &mut Command) -> String {
    tried(command).await.unwrap_or_else(|error| panic!("{error}"))
}

/// The same, or how it failed.
async fn tried(command: &mut Command) -> Result<String, String> {
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.unwrap();
    let (printed, errors) = (output.stdout, String::from_utf8_lossy(&output.stderr));
    let printed = String::from_utf8_lossy(&printed).into_owned();
    if output.status.success() {
        Ok(printed)
    } else {
        Err(format!("{:?}: {}\n{printed}{errors}", command.as_std(), output.status))
    }
}

#[expect(clippy::disallowed_methods, reason = "how long it takes, for the reader")]
fn now() -> Instant {
    Instant::now()
}

/// For `make nodes -- --nocapture`, and for the report of a failed test.
fn took(what: &str, since: Instant) {
    println!("{what}: {:.1} s", since.elapsed().as_secs_f64());
}

fn shown(error: impl Debug) -> String {
    format!("{error:?}")
}
