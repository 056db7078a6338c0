//! The binary: flags, settings and wiring. The functions of a role are in the role's crate.

mod agent;
mod ages;
mod cli;
mod cloud;
mod cloud_server;
mod controller;
mod coordinator;
mod explain;
mod host;
mod json_path;
mod live;
mod password;
mod place;
mod plugin;
mod release;
mod settings;
mod text_file;
mod upgrade;
mod validate;
mod version;

use std::io::{self, Write as _};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use tidewaiter_api::Role;
use tidewaiter_kit::Chain;
use tidewaiter_kit::role::RoleError;
use tidewaiter_kit::telemetry::last_line;

use cli::{Cli, CloudCommand, Command, CrdRole};

/// It returns memory after the burst of a cold start; `.cargo/config.toml` configures it.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// The reason why the process ends with another code than 0.
#[derive(Debug)]
enum Failure {
    /// Something that the operator gave is wrong; nothing was started.
    Configuration(anyhow::Error),
    /// It failed on the way.
    Running(anyhow::Error),
}

impl From<RoleError> for Failure {
    fn from(error: RoleError) -> Self {
        match error {
            RoleError::Configuration(error) => Self::Configuration(anyhow::Error::from_boxed(error)),
            RoleError::Running(error) => Self::Running(anyhow::Error::from_boxed(error)),
        }
    }
}

fn main() -> ExitCode {
    if let Err(error) = tidewaiter_kit::proxy::exempt_this_machine() {
        return fail(&error.into(), 2);
    }
    let command = match Cli::read(std::env::args_os()) {
        Ok(cli) => cli.command,
        Err(code) => return code,
    };
    let result = match command {
        Command::Validate(args) => return validate::main(&args).unwrap_or_else(|error| fail(&error, 1)),
        Command::Controller(args) => controller::main(&args),
        Command::Coordinator(args) => coordinator::main(&args),
        Command::Agent(args) => agent::main(&args),
        Command::Host(command) => host::main(&command),
        Command::Release(args) => release::main(&args),
        Command::Plugin(command) => plugin::main(&command),
        Command::Upgrade(command) => match upgrade::main(&command) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Cloud(CloudCommand::Server(command)) => cloud_server::main(&command),
        Command::Explain(question) => explain::main(&question),
        Command::Cloud(CloudCommand::Client(command)) => match cloud::main(&command) {
            Ok(code) => return code,
            Err(failure) => Err(failure),
        },
        Command::Credential(args) => cloud::credential(&args),
        Command::Version(args) => version::main(&args),
        Command::Crds { role } => print_crds(role).map_err(Failure::Running),
        Command::Completions { shell } => {
            let script = cli::completions::script(shell);
            printed(io::stdout().write_all(script.as_bytes())).map_err(Failure::Running)
        }
        Command::Complete { words } => cloud::complete(&words).map_err(Failure::Running),
        Command::Manual { folder: Some(folder) } => clap_mangen::generate_to(Cli::complete_command(), folder)
            .context("writing the manual pages")
            .map_err(Failure::Running),
        Command::Manual { folder: None } => {
            write_stdout(&cli::reference::markdown(Cli::complete_command())).map_err(Failure::Running)
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Running(error)) => fail(&error, 1),
        Err(Failure::Configuration(error)) => fail(&error, 2),
    }
}

/// The one place where an error is printed, with its causes, in one line.
fn fail(error: &anyhow::Error, code: u8) -> ExitCode {
    let text = Chain(error.as_ref()).to_string();
    let words: Vec<&str> = text.split_whitespace().collect();
    last_line(&format!("tidewaiter: {}", words.join(" ")));
    ExitCode::from(code)
}

/// Writes to standard output.
fn write_stdout(text: &str) -> Result<()> {
    let written = io::stdout().write_all(text.as_bytes());
    written.context("writing to standard output")
}

/// The result of a write to standard output. That nobody reads on, as after `| head`, is no failure.
fn printed(written: io::Result<()>) -> Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("writing to standard output"),
    }
}

fn print_crds(role: Option<CrdRole>) -> Result<()> {
    let mut out = io::stdout().lock();
    for crd in role.map_or_else(tidewaiter_api::crds, |role| Role::from(role).crds()) {
        let yaml = tidewaiter_kit::yaml::to_string(&crd).context("a CustomResourceDefinition as YAML")?;
        printed(write!(out, "---\n{yaml}"))?;
    }
    Ok(())
}
