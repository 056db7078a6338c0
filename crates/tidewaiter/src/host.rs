//! `tidewaiter host`: the commands on a node, as root.

use std::path::PathBuf;

use anyhow::{Context as _, Result, anyhow, bail};
use tidewaiter_agent::break_glass;
use tidewaiter_agent::upgrade::files::Outcome;
use tidewaiter_agent::upgrade::install::{Install, InstallError, read_key};
use tidewaiter_agent::upgrade::keys;
use tidewaiter_agent::upgrade::place::check_host;
use tidewaiter_agent::upgrade::run::Runner;
use tidewaiter_agent::upgrade::uninstall::Uninstall;
use tidewaiter_cloud::signed::TrustedKey;
use tidewaiter_kit::SystemClock;

use crate::Failure;
use crate::cli::{
    AgentFolders, HostBreakGlassCommand, HostCommand, HostInstallArgs, HostKeysCommand, HostRunArgs, HostUninstallArgs,
    STATE,
};
use crate::write_stdout;

pub(crate) fn main(command: &HostCommand) -> Result<(), Failure> {
    // Without root, the pinned files would look like those of somebody else.
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::Configuration(anyhow!(
            "tidewaiter host reads and writes files of root: run it as root, for example with sudo"
        )));
    }
    match command {
        HostCommand::Install(args) => install(args).map_err(Failure::Configuration),
        HostCommand::Keys(command) => change_keys(command).map_err(Failure::Configuration),
        HostCommand::Uninstall(args) => uninstall(args).map_err(Failure::Configuration),
        HostCommand::Run(args) => run(args).map_err(Failure::Running),
        HostCommand::BreakGlass(command) => change_break_glass(command).map_err(Failure::Running),
    }
}

fn install(args: &HostInstallArgs) -> Result<()> {
    check_host()?;
    let installed = Install {
        cluster: args.cluster.to_string(),
        node: args.node.clone(),
        keys: read_keys(&args.keys, &args.agent)?,
        folder: args.agent.folder.clone(),
        agent_state: args.agent.state_folder.clone(),
        pinned: args.pinned.clone(),
        units: args.units.clone(),
        state: STATE.into(),
        program: match &args.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().context("the path of this program")?,
        },
        kubelet: args.kubelet.clone(),
        script_folder: args.script_folder.clone(),
    };
    let done = installed.install()?.join("\n");
    write_stdout(&format!(
        "{done}\n\nNext:\n  systemctl daemon-reload\n  systemctl enable --now tidewaiter-upgrade.path tidewaiter-upgrade.service\n"
    ))
}

fn read_keys(paths: &[PathBuf], agent: &AgentFolders) -> Result<Vec<TrustedKey>, InstallError> {
    let key = |path: &PathBuf| read_key(path, &agent.folder, &agent.state_folder);
    paths.iter().map(key).collect()
}

fn change_keys(command: &HostKeysCommand) -> Result<()> {
    let lines = match command {
        HostKeysCommand::List(args) => keys::list(&args.pinned)?,
        HostKeysCommand::Add(args) => {
            check_host()?;
            keys::add(&args.pinned, &read_keys(&args.keys, &args.agent)?)?
        }
        HostKeysCommand::Remove(args) => {
            check_host()?;
            keys::remove(&args.pinned, &args.key, args.force)?
        }
    };
    write_stdout(&format!("{}\n", lines.join("\n")))
}

fn uninstall(args: &HostUninstallArgs) -> Result<()> {
    check_host()?;
    let removed = Uninstall {
        folder: args.folder.clone(),
        pinned: args.pinned.clone(),
        units: args.units.clone(),
        state: args.state.clone(),
        script_folder: args.script_folder.clone(),
    };
    let done = removed.uninstall()?;
    if done.is_empty() {
        return write_stdout("there is nothing to remove\n");
    }
    write_stdout(&format!(
        "{}\n\nKept: authorized_keys, the break-glass keys, and in {} which scripts have run, so that none runs again after another installation.\n\n\
         Next:\n  systemctl stop tidewaiter-upgrade.path\n  systemctl daemon-reload\n",
        done.join("\n"),
        args.state.display()
    ))
}

fn change_break_glass(command: &HostBreakGlassCommand) -> Result<()> {
    let done = match command {
        HostBreakGlassCommand::Pin(args) => break_glass::pin(&args.pinned, &args.folder, &args.key)?,
        HostBreakGlassCommand::List(args) => break_glass::list(&args.pinned)?,
        HostBreakGlassCommand::Remove(args) => break_glass::unpin(&args.pinned, &args.fingerprint)?,
    };
    write_stdout(&format!("{done}\n"))
}

/// Fails when the script failed or was refused, so that the unit shows it.
fn run(args: &HostRunArgs) -> Result<()> {
    let runner = Runner {
        folder: args.folder.clone(),
        pinned: args.pinned.clone(),
        state: args.state.clone(),
        script_folder: args.script_folder.clone(),
        kubelet: args.kubelet.clone(),
        clock: SystemClock::shared(),
    };
    let (result, nothing) = if args.way_back {
        (runner.way_back()?, "there is nothing to take back\n")
    } else {
        (runner.run()?, "there is no upgrade script to run\n")
    };
    let Some(result) = result else {
        return write_stdout(nothing);
    };
    let summary = format!("upgrade {}: {}", result.id, result.message);
    if result.outcome != Outcome::Succeeded && !result.rolled_back {
        bail!(summary);
    }
    write_stdout(&format!("{summary}\n"))
}
