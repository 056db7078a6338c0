//! The flags of `tidewaiter upgrade`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{ClusterFlags, OutputFormat};

const WATCH_CODES: &str = "Exit codes:
  0    the upgrade has succeeded
  1    it could not be followed to its end, or was deleted
  2    invalid flags
  3    the upgrade has failed
  130  stopped by SIGINT; 143 by SIGTERM. The upgrade goes on";

#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// Shows what an upgrade does, node by node: the order, what is skipped, what is refused and why, and what it waits
    /// for; changes nothing
    Plan(UpgradePlanArgs),
    /// Follows an upgrade until it is over: a live view on a terminal, otherwise one line for each change
    #[command(after_help = WATCH_CODES)]
    Watch(UpgradeWatchArgs),
}

/// The cluster of an upgrade.
#[derive(Debug, Args)]
pub(crate) struct UpgradePlace {
    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradePlanArgs {
    /// The name of the upgrade, which is its id if the cloud ordered it
    #[arg(
        value_name = "NAME",
        required_unless_present = "filename",
        conflicts_with = "filename"
    )]
    pub(crate) name: Option<String>,

    /// A file with an upgrade that is not created yet, or - for the standard input: a `ClusterUpgrade`, or a file for
    /// `tidewaiter cloud create upgrade`
    #[arg(short, long, value_name = "FILE")]
    pub(crate) filename: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) place: UpgradePlace,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeWatchArgs {
    /// The name of the upgrade, which is its id if the cloud ordered it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) place: UpgradePlace,
}
