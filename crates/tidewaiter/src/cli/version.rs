//! The flags of `tidewaiter version`.

use clap::Args;

use super::{ClusterFlags, OutputFormat};

#[derive(Debug, Args)]
pub(crate) struct ShowVersionArgs {
    /// Only the version of this program: asks no server
    #[arg(long)]
    pub(crate) client: bool,

    #[command(flatten)]
    pub(crate) cluster: ClusterFlags,

    /// The context of the cloud [default: the current one]
    #[arg(long, value_name = "NAME", env = "TIDEWAITER_CLOUD_CONTEXT")]
    pub(crate) cloud_context: Option<String>,

    /// The output format
    #[arg(short, long, value_name = "FORMAT", default_value = "table")]
    pub(crate) output: OutputFormat,
}
