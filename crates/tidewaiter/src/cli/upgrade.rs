//! The flags of `tidewaiter upgrade`.

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
    /// Shows what an upgrade does, node by node: the order, what is skipped, what is refused and why, and what it waits for; changes nothing
    Plan(UpgradePlanArgs),
    /// Follows an upgrade until it is over: a live view on a terminal, otherwise one line for each change
    #[command(after_help = WATCH_CODES)]
    Watch(UpgradeWatchArgs),
}

/// An upgrade in a cluster.
#[derive(Debug, Args)]
pub(crate) struct UpgradePlace {
    /// The name of the upgrade, which is its id if the cloud ordered it
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradePlanArgs {
    #[command(flatten)]
    pub(crate) place: UpgradePlace,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}

#[derive(Debug, Args)]
pub(crate) struct UpgradeWatchArgs {
    #[command(flatten)]
    pub(crate) place: UpgradePlace,
}
