//! The client commands of `tidewaiter cloud` and `tidewaiter credential`.
//!
//! Secrets come from files, the environment or a prompt, never from arguments, and are sent only to the cloud. Changes
//! are shown before they are made, and nothing is changed if one document of several is invalid.

mod actions;
mod api_document;
mod apply;
mod attach;
mod catalogue;
mod cluster_reports;
mod completion;
mod contexts;
mod credential;
mod decisions;
mod documents;
mod ending;
mod fields;
mod impact;
mod invitations;
mod kinds;
mod login;
mod manifests;
mod names;
mod objects;
mod offboard;
mod operators;
mod output;
mod plan;
mod planner;
mod preflight;
mod script_templates;
mod scripts;
mod session;
mod sign;
mod sign_in;
mod upgrades;

use std::process::ExitCode;

use anyhow::Result;
use tidewaiter_cloud::models::Kind;

use crate::Failure;
use crate::cli::{ClientCommand, CloudPlace, CredentialArgs};

pub(crate) use apply::confirm;
pub(crate) use output::{is_table, json, print, printable_json, printable_yaml, rows, yaml};

use session::Session;

/// Runs the command.
pub(crate) fn main(command: &ClientCommand) -> Result<ExitCode, Failure> {
    run(async {
        match command {
            ClientCommand::Login(args) => login::login(args).await.map(done),
            ClientCommand::Logout(args) => login::logout(args).await.map(done),
            ClientCommand::Whoami(args) => login::whoami(args).await.map(done),
            ClientCommand::Get(args) => objects::get(args).await.map(done),
            ClientCommand::Describe(args) => objects::describe(args).await.map(done),
            ClientCommand::Create(args) => objects::create(args).await.map(done),
            ClientCommand::Attach(args) => attach::attach(args).await.map(done),
            ClientCommand::Apply(args) => apply::apply(args).await.map(done),
            ClientCommand::Diff(args) => apply::diff(args).await,
            ClientCommand::Edit(args) => objects::edit(args).await.map(done),
            ClientCommand::Delete(args) => objects::delete(args).await.map(done),
            ClientCommand::Action(command) => actions::main(command).await.map(done),
            ClientCommand::Sign(args) => sign::sign(args).map(done),
            ClientCommand::SignScript(args) => sign::sign_script(args).map(done),
            ClientCommand::Audit(args) => objects::audit(args).await.map(done),
            ClientCommand::Operators(command) => operators::main(command).await.map(done),
            ClientCommand::Context(command) => login::context(command).await.map(done),
        }
    })
    // For diff, 1 means that there are differences.
    .map_err(|error| match command {
        ClientCommand::Diff(_) => Failure::Configuration(error),
        _ => Failure::Running(error),
    })
}

/// The version of the server of a context.
///
/// # Errors
/// The user is not logged in there, or the server does not answer.
pub(crate) async fn server_version(context: Option<&str>) -> Result<String> {
    let place = CloudPlace {
        context: context.map(str::to_owned),
        ..CloudPlace::default()
    };
    Session::open(place)?.server_version().await
}

/// The id of an object of the organization that has this name in the cloud; None if the user is not logged in, or it
/// does not resolve the name.
pub(crate) async fn id_of(kind: Kind, name: &str) -> Option<String> {
    let session = Session::open(CloudPlace::default()).ok()?;
    let list = session.organization().ok()?.below(kind.facts().segment);
    session.find(kind, &list, name).await.ok()?
}

/// Prints the names that complete the last word of a command line.
pub(crate) fn complete(words: &[String]) -> Result<()> {
    run(completion::complete(words))
}

/// Gives kubectl a token.
pub(crate) fn credential(args: &CredentialArgs) -> Result<(), Failure> {
    run(credential::print(args)).map_err(Failure::Running)
}

/// Runs the command to its end.
pub(crate) fn run<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let result = runtime.block_on(future);
    // A pending DNS lookup blocks its thread.
    runtime.shutdown_background();
    result
}

fn done((): ()) -> ExitCode {
    ExitCode::SUCCESS
}
