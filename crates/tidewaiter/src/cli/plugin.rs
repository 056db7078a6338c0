//! The flags of `tidewaiter plugin`.

use clap::{Args, Subcommand, ValueEnum};

use super::{ClusterFlags, Printed};

#[derive(Debug, Subcommand)]
pub(crate) enum PluginCommand {
    /// Shows what the version that awaits approval would change in the cluster
    Diff(PluginDiffArgs),
    /// Shows what the version that awaits approval would change in the cluster, and approves exactly these changes
    Approve(PluginApproveArgs),
    /// Lists the versions that were accepted
    History(PluginHistoryArgs),
    /// Goes back to an earlier version, until the cloud has another one
    Rollback(PluginRollbackArgs),
}

/// A plugin in a cluster.
#[derive(Debug, Args)]
pub(crate) struct PluginPlace {
    /// The plugin: its id, TYPE/IMPLEMENTATION or TYPE
    #[arg(value_name = "NAME")]
    pub(crate) name: String,

    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
}

#[derive(Debug, Args)]
pub(crate) struct PluginDiffArgs {
    #[command(flatten)]
    pub(crate) place: PluginPlace,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "text")]
    pub(crate) output: DiffFormat,

    /// Shows the values of Secrets, in place of their digests
    #[arg(long)]
    pub(crate) show_secrets: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffFormat {
    /// Lines with - and +
    Text,
    /// JSON
    Json,
}

#[derive(Debug, Args)]
pub(crate) struct PluginApproveArgs {
    #[command(flatten)]
    pub(crate) place: PluginPlace,

    /// The digest that must be that of the diff
    #[arg(long, value_name = "DIGEST")]
    pub(crate) digest: Option<String>,

    /// Approves without confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct PluginHistoryArgs {
    #[command(flatten)]
    pub(crate) place: PluginPlace,

    #[command(flatten)]
    pub(crate) printed: Printed,
}

#[derive(Debug, Args)]
pub(crate) struct PluginRollbackArgs {
    #[command(flatten)]
    pub(crate) place: PluginPlace,

    /// The version, or the first digits of its revision [default: the last one that was applied to its end before]
    #[arg(long, value_name = "VERSION|REVISION")]
    pub(crate) to: Option<String>,

    /// Ends a rollback: the version of the cloud is applied again
    #[arg(long, conflicts_with = "to")]
    pub(crate) undo: bool,

    /// Goes back without confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,
}
