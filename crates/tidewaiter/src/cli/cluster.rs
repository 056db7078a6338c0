//! The flags that select a Kubernetes cluster, as those of kubectl.

use std::path::PathBuf;

use clap::Args;

/// The cluster of a kubeconfig.
#[derive(Debug, Args)]
pub(crate) struct ClusterFlags {
    /// The kubeconfig file [default: KUBECONFIG, else ~/.kube/config, else the pod's service account]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig [default: the current one]
    #[arg(long, value_name = "CONTEXT")]
    pub(crate) context: Option<String>,
}
