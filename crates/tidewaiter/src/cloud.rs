//! `tidewaiter cloud get`, `apply` and their like, and `tidewaiter credential`: the cloud as a person sees it.
//!
//! Secrets come from files, the environment or a prompt, never from arguments, and go to nobody but the cloud. What is to
//! change is shown before it is changed, and nothing is changed when one document of several is wrong.

mod api_document;
mod apply;
mod contexts;
mod credential;
mod documents;
mod kinds;
mod login;
mod objects;
mod operators;
mod output;
mod plan;
mod planner;
mod session;

use std::process::ExitCode;

use anyhow::Result;

use crate::Failure;
use crate::cli::{ClientCommand, CredentialArgs};

/// Does what was asked for.
pub(crate) fn main(command: &ClientCommand) -> Result<ExitCode, Failure> {
    run(async {
        match command {
            ClientCommand::Login(args) => login::login(args).await.map(done),
            ClientCommand::Logout(args) => login::logout(args).map(done),
            ClientCommand::Whoami(args) => login::whoami(args).await.map(done),
            ClientCommand::Get(args) => objects::get(args).await.map(done),
            ClientCommand::Describe(args) => objects::describe(args).await.map(done),
            ClientCommand::Create(args) => objects::create(args).await.map(done),
            ClientCommand::Apply(args) => apply::apply(args).await.map(done),
            ClientCommand::Diff(args) => apply::diff(args).await,
            ClientCommand::Edit(args) => objects::edit(args).await.map(done),
            ClientCommand::Delete(args) => objects::delete(args).await.map(done),
            ClientCommand::Audit(args) => objects::audit(args).await.map(done),
            ClientCommand::Operators(command) => operators::main(command).await.map(done),
            ClientCommand::Context(command) => login::context(command).map(done),
        }
    })
    // With diff, 1 says that something differs.
    .map_err(|error| match command {
        ClientCommand::Diff(_) => Failure::Configuration(error),
        _ => Failure::Running(error),
    })
}

/// Gives kubectl a token.
pub(crate) fn credential(args: &CredentialArgs) -> Result<(), Failure> {
    run(credential::print(args)).map_err(Failure::Running)
}

fn run<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // A name that is being resolved holds a thread for as long as it takes.
    runtime.shutdown_background();
    result
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}
