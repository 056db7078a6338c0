//! `deploy/chart`, rendered and installed by Helm; its objects on a real API server. No kubelet runs, so no pod does.
#![allow(clippy::expect_used, clippy::panic, clippy::unwrap_used, reason = "tests")]

mod accepted;
mod agreed;
mod life;
mod policies;
mod random;
mod rendered;
mod settings;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;
use tidewaiter_testkit::{ControlPlane, Identity, assets};

/// The value sets with golden files, besides that of the manifests in `deploy/`.
const SETS: [&str; 7] = [
    "controller",
    "hetzner",
    "coordinator",
    "limited",
    "agent",
    "upgrades",
    "cloud",
];

/// The output of a program.
struct Ran {
    success: bool,
    out: String,
    err: String,
}

impl Ran {
    /// Returns the output, if it succeeded.
    #[track_caller]
    fn output(self) -> String {
        assert!(self.success, "{}{}", self.out, self.err);
        self.out
    }

    /// Its errors, if it failed.
    #[track_caller]
    fn refusal(self) -> String {
        assert!(!self.success, "{}", self.out);
        self.err
    }
}

fn run(command: &mut Command, input: &str) -> Ran {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A program that refuses its arguments does not read.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    Ran {
        success: output.status.success(),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// Helm without a cluster.
fn helm() -> Command {
    let mut command = Command::new(assets::helm());
    command.env_clear().env("HOME", env!("CARGO_TARGET_TMPDIR"));
    command
}

/// Helm as an administrator of this cluster.
fn helm_in(cluster: &ControlPlane) -> Command {
    let mut command = helm();
    command
        .env("HOME", cluster.folder())
        .env("KUBECONFIG", cluster.kubeconfig(&Identity::Admin));
    command
}

/// kubectl as an administrator of this cluster.
fn kubectl(cluster: &ControlPlane, arguments: &[&str], input: &str) -> Ran {
    run(cluster.kubectl(&Identity::Admin).args(arguments), input)
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn chart() -> PathBuf {
    deploy().join("chart")
}

/// The file with this value set.
fn values_of(set: &str) -> PathBuf {
    here().join("values").join(format!("{set}.yaml"))
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/chart")
}

/// Renders the chart with these values and arguments.
fn template(values: &Value, arguments: &[&str]) -> Ran {
    let mut command = helm();
    command
        .arg("template")
        .arg("tidewaiter")
        .arg(chart())
        .args(["--values", "-"]);
    run(command.args(arguments), &values.to_string())
}

/// Renders the chart with the values of this file.
fn template_of(file: &Path, arguments: &[&str]) -> Ran {
    let mut command = helm();
    command
        .arg("template")
        .arg("tidewaiter")
        .arg(chart())
        .arg("--values")
        .arg(file);
    run(command.args(["--namespace", "default"]).args(arguments), "")
}

/// The objects of a rendering.
fn objects(rendered: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(rendered).unwrap()
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let found = objects
        .iter()
        .find(|object| object["kind"] == kind && object["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[expect(clippy::disallowed_methods, reason = "a file that nobody reads yet")]
fn write(path: &Path, content: &str) {
    std::fs::write(path, content).unwrap();
}
