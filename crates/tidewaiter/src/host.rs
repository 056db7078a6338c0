//! `tidewaiter host`: the commands on a node, as root.

use std::io::{self, Write as _};

use anyhow::{Context as _, Result, anyhow, bail};
use tidewaiter_agent::break_glass;
use tidewaiter_agent::upgrade::files::Outcome;
use tidewaiter_agent::upgrade::install::Install;
use tidewaiter_agent::upgrade::run::Runner;
use tidewaiter_kit::SystemClock;

use crate::Failure;
use crate::cli::{HostBreakGlassCommand, HostCommand, HostInstallArgs, HostRunArgs};

pub(crate) fn main(command: &HostCommand) -> Result<(), Failure> {
    match command {
        HostCommand::Install(args) => install(args).map_err(Failure::Configuration),
        HostCommand::Run(args) => run(args).map_err(Failure::Running),
        HostCommand::BreakGlass(command) => change_break_glass(command).map_err(Failure::Running),
    }
}

fn install(args: &HostInstallArgs) -> Result<()> {
    let mut keys = Vec::new();
    for path in &args.keys {
        let text = std::fs::read_to_string(path).with_context(|| format!("--key {}", path.display()))?;
        let line = text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        let key = line.trim().parse().map_err(|rule: String| anyhow!(rule));
        keys.push(key.with_context(|| format!("--key {}", path.display()))?);
    }
    let installed = Install {
        cluster: args.cluster.to_string(),
        node: args.node.clone(),
        keys,
        folder: args.folder.clone(),
        units: args.units.clone(),
        program: match &args.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("the path of this program")?,
        },
        kubelet: args.kubelet.clone(),
    };
    let done = installed.install()?.join("\n");
    say(&format!(
        "{done}\n\nNext:\n  systemctl daemon-reload\n  systemctl enable --now tidewaiter-upgrade.path tidewaiter-upgrade.service\n"
    ))
}

fn change_break_glass(command: &HostBreakGlassCommand) -> Result<()> {
    let done = match command {
        HostBreakGlassCommand::Pin(args) => break_glass::pin(&args.pinned, &args.folder, &args.key)?,
        HostBreakGlassCommand::Remove(args) => break_glass::unpin(&args.pinned, &args.fingerprint)?,
    };
    say(&format!("{done}\n"))
}

/// Fails when the script failed or was refused, so that the unit shows it.
fn run(args: &HostRunArgs) -> Result<()> {
    let runner = Runner {
        folder: args.folder.clone(),
        state: args.state.clone(),
        kubelet: args.kubelet.clone(),
        clock: SystemClock::shared(),
    };
    let (result, nothing) = if args.way_back {
        (runner.way_back()?, "there is nothing to take back\n")
    } else {
        (runner.run()?, "there is no upgrade script to run\n")
    };
    let Some(result) = result else {
        return say(nothing);
    };
    let told = format!("upgrade {}: {}", result.id, result.message);
    if result.outcome != Outcome::Succeeded && !result.rolled_back {
        bail!(told);
    }
    say(&format!("{told}\n"))
}

fn say(text: &str) -> Result<()> {
    let printed = io::stdout().write_all(text.as_bytes());
    printed.context("writing to standard output")
}
