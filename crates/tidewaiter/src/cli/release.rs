//! The flags of `tidewaiter release`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ReleaseArgs {
    /// The kind, for example User [default: every kind of which something is held]
    pub(crate) kind: Option<String>,

    /// Releases without confirmation
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// The kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
}
