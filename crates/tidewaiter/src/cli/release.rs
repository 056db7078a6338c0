//! The flags of `tidewaiter release`.

use clap::Args;

use super::ClusterFlags;

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The kind, for example User [default: every kind of which something is held]
    pub(crate) kind: Option<String>,

    /// Releases without confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,

    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,
}
