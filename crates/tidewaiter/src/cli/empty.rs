//! Empty variables, which count as unset: a template often cannot leave a variable out.

use std::ffi::OsStr;

use clap::Command;
use clap::builder::Resettable;

/// The command without its empty variables, which count as unset.
pub(super) fn unset(command: Command, environment: &[(String, String)]) -> Command {
    let is_empty = |name: &OsStr| {
        environment
            .iter()
            .any(|(key, value)| name == key.as_str() && value.is_empty())
    };
    let command = command.mut_args(|flag| match flag.get_env() {
        Some(name) if is_empty(name) => flag.env(Resettable::Reset),
        _ => flag,
    });
    command.mut_subcommands(|command| unset(command, environment))
}
